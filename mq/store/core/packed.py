"""What the core knows of packs: where items are between their pack and their own files."""

from collections.abc import Iterator

from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.format.packs import Try, tries, tries_of


def committed_tries(root: Root) -> Iterator[Try]:
    """Packs that are parted, and whose items may not all be at their places yet. Raises
    OSError.
    """
    return (each for each in tries(root.layout, root.files) if is_committed(root, each))


def is_on_its_way(root: Root, queue: QueueName, item: MessageId) -> bool:
    """Whether the item's pack is parted, and the item not at its place yet. Raises OSError."""
    found = tries_of(root.layout, root.files, queue, item.pack())
    return any(is_committed(root, each) and _has(root, each, item) for each in found)


def is_being_parted(root: Root, queue: QueueName, item: MessageId) -> bool:
    """Whether the item has a file that waits for its pack's parting, or for its place. Raises
    OSError.
    """
    found = tries_of(root.layout, root.files, queue, item.pack())
    return any(_has(root, each, item) for each in found)


def is_committed(root: Root, tried: Try) -> bool:
    """Whether the pack of this try is parted. Raises OSError."""
    return root.files.status(tried.pack_path(root.layout)) is not None


def _has(root: Root, tried: Try, item: MessageId) -> bool:
    return root.files.status(tried.item_path(root.layout, item)) is not None
