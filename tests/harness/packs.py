"""Packs as files made by hand, in the bytes that mq writes; and operations on items, as a broker
runs them, without one.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from harness.messages import put_file
from mq.model.clock import SystemClock
from mq.model.errors import Busy, MessageNotFound, MqError
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.packs import contents
from mq.store.core.root import Root
from mq.store.disk.steps import Steps, T
from mq.store.packs.items import units

_uuids = UuidSource(SystemClock())
TRIES_MAX = 4


def new_pack(items: int, like: MessageId | None = None, uuids: UuidSource = _uuids) -> MessageId:
    """The id of a new pack of this many items, with the attributes of `like`."""
    (uuid,) = uuids.packs(1)
    like = like or MessageId(uuid)
    return MessageId(
        uuid,
        like.priority,
        visibility_s=like.visibility_s,
        header_bytes=like.header_bytes,
        extension=like.extension,
        items=items,
    )


def body_of(item: MessageId) -> bytes:
    """A body that only this item has; with a line feed in it."""
    return f"{item.text}\n".encode() * (item.place % 3)


def as_messages(names: Iterable[str]) -> list[str]:
    """The files of these names, `{queue}:{id}`, with the items for each pack; sorted."""
    found = []
    for name in names:
        queue, _, text = name.rpartition(":")
        file = MessageId.parse(text)
        found += [f"{queue}:{each.text}" for each in file.all_items() or (file,)]
    return sorted(found)


def put_pack(
    path: Path,
    pack: MessageId,
    block: bytes = b"",
    due_ms: int | None = None,
    receives: int = 0,
    bodies: Sequence[bytes] | None = None,
) -> Path:
    """A pack's file under this path; its items have the bodies of `body_of`."""
    if bodies is None:
        bodies = [body_of(each) for each in pack.all_items()]
    return put_file(path, block + contents(bodies), due_ms, receives)


def on_items(
    root: Root,
    queue: QueueName,
    ids: Sequence[MessageId],
    operation: Callable[[MessageId], Steps[T]],
    *,
    some_take_all: bool = False,
) -> Steps[list[T | MqError | OSError]]:
    """Runs an ordinary operation on items of one pack: `operation(id)` for each of `units`.
    Returns the outcome of each id, in their order; those of a whole pack share one. Tries again
    where the pack was parted meanwhile. Does not raise MqError or OSError. Durable on return: as
    the operation.
    """
    for _ in range(TRIES_MAX):
        outcomes: dict[str, T | MqError | OSError] = {}
        try:
            found = yield from units(root, queue, ids, some_take_all=some_take_all)
        except (MqError, OSError) as error:
            return [error for _ in ids]
        for each in dict.fromkeys(found):
            try:
                outcomes[each.text] = yield from operation(each)
            except (MqError, OSError) as error:
                outcomes[each.text] = error
        if not found[0].items:
            break
        outcome = outcomes[found[0].text]
        if not isinstance(outcome, MessageNotFound | Busy):
            return [outcome if each.is_possible else MessageNotFound(each.text) for each in ids]
    return [outcomes.get(each.text, MessageNotFound(each.text)) for each in ids]
