"""Messages put into a root by hand, wherever one may lie, and rows of them as mq.spark reads."""

from pathlib import Path
from typing import Any

from harness.messages import put_file
from mq.model.headers import Headers, print_block
from mq.model.lifecycle import State
from mq.model.names import Key, MessageId, QueueName
from mq.spark.listing import blocks_of
from mq.spark.options import Subscription
from mq.spark.partitions import Cut, partitions
from mq.spark.reading import Manner, batches
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.bucket_names import IN_COMMON, Shape
from mq.store.format.layout import Layout

ORDERS = QueueName.parse("orders")
BEGIN_MS = 1_700_000_000_000

Row = dict[str, Any]


def an_id(
    number: int,
    priority: int = 0,
    key: str | None = None,
    header_bytes: int = 0,
    extension: str = "",
) -> MessageId:
    """The id of a message that was published so many milliseconds after BEGIN_MS."""
    digits = f"{BEGIN_MS + number:012x}70008{number:015x}"
    uuid = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    written = Key.parse(key) if key else None
    return MessageId(uuid, priority, written, header_bytes=header_bytes, extension=extension)


def put(
    root: str | Path,
    message_id: MessageId,
    body: bytes = b"",
    *,
    state: State = State.READY,
    queue: QueueName = ORDERS,
    depth: int = 0,
    shape: Shape | None = None,
    headers: Headers = (),
    due_ms: int = BEGIN_MS,
    receives: int = 0,
    bucket: str = "",
) -> Path:
    """A message's file: flat, in its bucket, or below that; or in the `bucket` that is given."""
    named = (shape or Shape()) if state is State.READY else IN_COMMON
    bucket = bucket or ("", named.bucket(message_id) + "/", named.deep(message_id))[depth]
    path = Path(Layout.of(root).path(state, queue, message_id, bucket))
    path.parent.mkdir(parents=True, exist_ok=True)
    return put_file(path, print_block(headers) + body, due_ms, receives)


def with_headers(number: int, headers: Headers, extension: str = "") -> MessageId:
    """The id of a message that has these before its body."""
    return an_id(number, header_bytes=len(print_block(headers)), extension=extension)


def queues(*names: str) -> Subscription:
    """These queues."""
    return Subscription(queues=tuple(map(QueueName.parse, names)))


def browse(
    root: Root,
    subscription: Subscription | None = None,
    state: State = State.READY,
    cut: Cut | None = None,
    **manner: Any,
) -> list[Row]:
    """All rows of a read, without Spark."""
    blocks = blocks_of(root, subscription or queues(ORDERS.text), state)
    found = partitions(root, blocks, cut or Cut())
    read = (batch for names in found for batch in batches(root, names, Manner(state, **manner)))
    return [row for batch in read for row in batch.to_pylist()]


def ids(rows: list[Row]) -> list[str]:
    """Their ids, sorted."""
    return sorted(row["id"] for row in rows)


class CountingFiles(Files):
    """Counts the files that are opened for their content."""

    def __init__(self) -> None:
        super().__init__()
        self.read_files = 0

    def read_file(self, path: str, size: int) -> bytes:
        self.read_files += 1
        return super().read_file(path, size)
