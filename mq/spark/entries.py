"""The messages that names of a folder are of: queues, ids, what the ids say, and paths.
Many names are parsed at once, which takes a fraction of the time.
"""

from functools import lru_cache
from itertools import repeat
from typing import Final, NamedTuple, TypeAlias

from mq.model.errors import BadName
from mq.model.limits import UUID_CHARS
from mq.model.names import UUID_V7, UUIDS_END, MessageId, are_uuids
from mq.spark.rows import DEFAULT_HEADERS, Attributes
from mq.store.format.layout import split_entry

_SOME_UUID: Final = "00000000-0000-7000-8000-000000000000"
_BARE: Final = Attributes(0, None, 0, DEFAULT_HEADERS)


class Group(NamedTuple):
    """Names of one folder: like listing.Block."""

    queue: str
    folder: str
    names: list[str]


Entry: TypeAlias = tuple[int, str, str, Attributes, str]
"""A name that is a message's: which of its group's it is, queue, id, what the id's end says, path.
"""


def entries(top: str, group: Group, at: int, end: int) -> list[Entry]:
    """The messages of a group's names from one on up to another; what is none is passed over."""
    base = f"{top}/{group.folder}"
    names = group.names[at:end]
    paths = [base + name for name in names]
    if group.queue:
        queues, texts = [group.queue] * len(names), names
    else:
        pairs = [split_entry(name) for name in names]
        queues, texts = [queue for queue, _ in pairs], [text for _, text in pairs]
    if texts and are_uuids(texts):
        return list(zip(range(at, end), queues, texts, repeat(_BARE), paths))
    return [
        (number, queue, text, attributes, path)
        for number, queue, text, path in zip(range(at, end), queues, texts, paths, strict=True)
        if (attributes := _attributes(text[UUID_CHARS:])) is not None and _is_id(text)
    ]


def _is_id(text: str) -> bool:
    return UUID_V7.fullmatch(text[:UUID_CHARS]) is not None and text < UUIDS_END


@lru_cache(4096)
def _attributes(end: str) -> Attributes | None:
    """What stands behind an id's uuid; None: it is no id's."""
    try:
        message_id = MessageId.parse(_SOME_UUID + end)
    except BadName:
        return None
    is_said = message_id.extension or not message_id.header_bytes
    return Attributes(
        message_id.priority,
        message_id.key.text if message_id.key else None,
        message_id.header_bytes,
        (("content-type", message_id.content_type),) if is_said else (),
    )
