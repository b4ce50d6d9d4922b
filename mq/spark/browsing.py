"""What a batch read has to list and to read; and the same read without Spark, for pandas, Polars,
DuckDB and whatever else takes Arrow.

    reader = mq.spark.arrow_reader("/var/lib/mq", "orders", where="priority > 5")
    polars.from_arrow(reader.read_all())
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from mq.model.errors import LeaseLost
from mq.model.lifecycle import State
from mq.model.limits import UUID_CHARS
from mq.model.names import messages_of
from mq.spark.listing import EVERYTHING, Block, Only, blocks_of, is_leased, lease_blocks
from mq.spark.narrowing import Narrowed
from mq.spark.opening import attached
from mq.spark.options import ReadOptions, Subscription
from mq.spark.partitions import Cut, partitions
from mq.spark.reading import Manner, attributes_of, batches
from mq.spark.rows import ARROW_SCHEMA
from mq.store.core.root import Root
from mq.store.format.layout import split_entry
from mq.store.format.pipeline import LeaseName


def names_of(root: Root, options: ReadOptions) -> Iterator[Block]:
    """The names to read. Raises QueueNotFound and LeaseLost at once; OSError."""
    found, lease = options.where, options.lease
    if lease is not None:
        name = LeaseName.parse(lease)
        if not is_leased(root, name):
            raise LeaseLost(lease)
        return lease_blocks(root, name)
    only = Only(found.takes_queue, found.takes_bucket) if found.conditions else EVERYTHING
    subscription = options.subscription or Subscription()
    return _narrowed(found, blocks_of(root, subscription, State(options.state), only))


def _narrowed(where: Narrowed, blocks: Iterator[Block]) -> Iterator[Block]:
    """The names of the blocks that hold, and those that are no message's."""
    found = where.of_names()
    if not found.conditions:
        return blocks

    def takes(queue: str, text: str) -> bool:
        attributes = attributes_of(text[UUID_CHARS:])
        if attributes is None:
            return True
        # A damaged pack is a row of its own id.
        texts = [text, *messages_of(text)] if attributes.pack_size else [text]
        return any(found.takes_name(queue, each, attributes) for each in texts)

    def held(block: Block) -> list[str]:
        if block.queue:
            return [name for name in block.names if takes(block.queue, name)]
        return [name for name in block.names if takes(*split_entry(name))]

    return (block._replace(names=held(block)) for block in blocks)


def manner_of(options: ReadOptions) -> Manner:
    """How to read them. A lease's read is a delivery."""
    is_lease = options.lease is not None
    state = State.LEASED if is_lease else State(options.state)
    found = options.where
    return Manner(
        state,
        options.include_value,
        options.read_threads,
        int(is_lease),
        due=found.of("due"),
        tag=found.of_headers(),
        ids=found.of("id"),
    )


def arrow_reader(
    root: str | Path, subscribe: str | None = None, **options: str | float | bool
) -> pa.RecordBatchReader:
    """The messages of queues as Arrow record batches, with the columns of Spark's read, without
    Spark. Changes nothing: consumers get the messages meanwhile. Lists and reads as the batches
    are taken, in bounded memory.

    `subscribe`: a queue, or several separated by commas. `options` are those of a read:
    subscribePattern, state, where, includeValue, readThreads. Raises BadOption, UnknownOption,
    StartupError, QueueNotFound; each batch ValueTooLarge, OSError.
    """
    said = {name: str(value) for name, value in options.items()}
    if subscribe is not None:
        said["subscribe"] = subscribe
    given = ReadOptions.parse({"path": str(Path(root).absolute()), **said})
    opened = attached(given.path)
    rows = _rows(opened, names_of(opened, given), manner_of(given))
    return pa.RecordBatchReader.from_batches(ARROW_SCHEMA, rows)


def _rows(root: Root, blocks: Iterable[Block], manner: Manner) -> Iterator[pa.RecordBatch]:
    for block in blocks:
        for names in partitions(root, [block], Cut()):
            yield from batches(root, names, manner)
