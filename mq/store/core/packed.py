"""What the core knows of packs: whether a root may have any, and where items are between their
pack and their own files.
"""

from collections.abc import Iterator

from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.replacing import write_over
from mq.store.disk.steps import Steps
from mq.store.format.layout import FORMAT_LINE_PACKS
from mq.store.format.packs import Try, new_format, tries, tries_of


def allow_packs(root: Root) -> Steps[None]:
    """Makes the root's format say that it has packs, before the first one: an mq that does not know
    packs would leave them alone when it removes messages. Raises OSError. Durable on return: no;
    with the pack.
    """
    if not has_packs(root):
        layout, content = root.layout, FORMAT_LINE_PACKS.encode("ascii")
        yield from write_over(root.files, new_format(layout), layout.format, content)
    root.facts.allows_packs = True


def has_packs(root: Root) -> bool:
    """Whether the root has, or had, packs. Raises OSError."""
    if root.facts.allows_packs:
        return True
    wanted = FORMAT_LINE_PACKS.encode("ascii")
    return root.files.read_file(root.layout.format, len(wanted) + 1) == wanted


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
