"""Bodies held against their digests: an archive's rows, removed messages that it has too, and
messages that say a digest of their own (the header `x-attribute-sha256`, 64 hexadecimal digits).
Each file is read whole, so what the disk cannot read is found on the way.
"""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from mq.model.headers import parse_block
from mq.model.lifecycle import State
from mq.model.limits import CHUNK_BYTES
from mq.model.names import MessageId, QueueName
from mq.spark.jobs.audit_findings import DIGEST, DIGEST_SAYS, Finding, finding_of_storage
from mq.spark.jobs.audit_sources import mapped
from mq.spark.jobs.audit_tasks import Batched, Task, unpacked
from mq.store.audit.folders import NameFolder
from mq.store.audit.screen import Screen
from mq.store.disk.files import Files, is_gone
from mq.store.format.layout import entry_prefix

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

HEADER: Final = "x-attribute-sha256"
_READ: Final = "read"
_REMOVED: Final = "removed"
_COLUMNS: Final = ("part", "path", "detail", "queue", "id", "sha256")
_ROWS: Final = ", ".join(f"{name} STRING" for name in _COLUMNS)
_SCHEMA: Final = pa.schema([(name, pa.string()) for name in _COLUMNS])
_FOUND_MAX: Final = 100_000
_REPAIR: Final = "by hand: the body is not what was published; another copy is the only help"
_FOLDERS_PER_ROW: Final = 64


class _Row(NamedTuple):
    part: str
    path: str = ""
    detail: str = ""
    queue: str = ""
    id: str = ""
    sha256: str = ""


def checked_bodies(
    spark: "SparkSession",
    task: Task,
    folders: Sequence[NameFolder],
    archive: Path | None,
    kept: "DataFrame | None",
) -> tuple[int, list[Finding]]:
    """How many bodies were held against a digest, and those that are not what it says (the first
    100,000). `kept`: what the archive in that folder has. Raises what Spark raises.
    """
    rows = mapped(spark, folders, _FOLDERS_PER_ROW, _reading(task, kept is not None), _ROWS)
    if kept is not None:
        rows = _with_archive(rows, kept, str(archive))
    rows = rows.where(f"part != '{_REMOVED}'")
    counted = 0
    found: list[Finding] = []
    # Rows of what was read say how many: there are a few of these a task.
    for row in rows.limit(_FOUND_MAX).collect():
        if row.part == _READ:
            counted += int(row.detail)
        elif row.part == DIGEST:
            found.append(Finding(DIGEST, DIGEST_SAYS, row.path, row.detail, row.queue, _REPAIR))
        else:
            found.append(finding_of_storage(row.path, row.detail, row.queue))
    return counted, found


def _with_archive(rows: "DataFrame", kept: "DataFrame", archive: str) -> "DataFrame":
    """The same, with what of the archive's rows, and of what they and the root both have, is not
    as the archive says.
    """
    from pyspark.sql import functions as sql  # noqa: PLC0415

    kept = kept.where("NOT coalesce(damaged, false) AND sha256 IS NOT NULL")
    told = kept.select("queue", "id", "sha256").distinct().withColumnRenamed("sha256", "said")
    both = rows.where(f"part = '{_REMOVED}'").join(told, ["queue", "id"]).cache()
    differ = both.where("sha256 != said").select(
        sql.lit(DIGEST).alias("part"),
        "path",
        sql.concat(sql.lit("the archive says "), "said").alias("detail"),
        "queue",
        "id",
        "sha256",
    )
    values = kept.where("value IS NOT NULL").select(
        "queue", "id", sql.col("sha256").alias("said"), sql.sha2("value", 256).alias("sha256")
    )
    wrong = values.where("sha256 != said").select(
        sql.lit(DIGEST).alias("part"),
        sql.concat(sql.lit(f"{archive}/queue="), "queue", sql.lit(" "), "id").alias("path"),
        sql.concat(sql.lit("the row says "), "said").alias("detail"),
        "queue",
        "id",
        "sha256",
    )
    files = kept.where("value IS NULL AND body IS NOT NULL").select("queue", "id", "sha256", "body")
    large = files.mapInArrow(_reading_bodies(archive), _ROWS)
    counts = [
        each.agg(sql.count("id").cast("string").alias("detail")).select(
            sql.lit(_READ).alias("part"),
            *(sql.lit("").alias(name) if name != "detail" else "detail" for name in _COLUMNS[1:]),
        )
        for each in (both, values)
    ]
    for more in (differ, wrong, large, *counts):
        rows = rows.unionByName(more)
    return rows


def _reading(task: Task, is_archived: bool) -> Batched:
    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        root = task.opened()
        screen = Screen(root, task.overdue_s, task.queues, is_by_name=True, has_deleted=True)
        counted: Counter[str] = Counter()
        for _, _, said in unpacked(batches):
            for folder in said:
                if folder.state is not None and folder.state is not State.NEW:
                    yield from _batched(
                        _of_folder(screen, root.files, folder, is_archived, counted)
                    )
        yield from _batched(iter([_Row(_READ, detail=str(counted[DIGEST]))]))

    return step


def _of_folder(
    screen: Screen, files: Files, folder: NameFolder, is_archived: bool, counted: "Counter[str]"
) -> Iterator[_Row]:
    is_removed = is_archived and folder.state is State.REMOVED
    for screened in screen.screened(folder):
        for queue, texts in screened.messages:
            before = "" if folder.queue is not None else entry_prefix(queue)
            for text in texts:
                path = f"{screened.folder.path}/{before}{text}"
                yield from _of_message(files, queue, text, path, is_removed, counted)


def _of_message(
    files: Files,
    queue: QueueName,
    text: str,
    path: str,
    is_removed: bool,
    counted: "Counter[str]",
) -> Iterator[_Row]:
    try:
        digest, block = _digest_of(files, path, MessageId.parse(text).header_bytes)
    except OSError as error:
        if not is_gone(error):
            yield _Row("storage", path, os.strerror(error.errno or 0), queue.text, text)
        return
    if is_removed:
        yield _Row(_REMOVED, path, "", queue.text, text, digest)
    said = next((value for name, value in parse_block(block) if name.lower() == HEADER), None)
    if said is not None:
        counted[DIGEST] += 1
        if said.lower() != digest:
            yield _Row(DIGEST, path, f"its header says {said}", queue.text, text, digest)


def _digest_of(files: Files, path: str, header_bytes: int) -> tuple[str, bytes]:
    """Of the body; and the header block before it. Raises OSError."""
    descriptor = files.open_read(path)
    try:
        block = files.read(descriptor, header_bytes, 0) if header_bytes else b""
        digest, offset = hashlib.sha256(), header_bytes
        while chunk := files.read(descriptor, CHUNK_BYTES, offset):
            digest.update(chunk)
            offset += len(chunk)
    finally:
        files.close(descriptor)
    return digest.hexdigest(), block


def _reading_bodies(archive: str) -> Batched:
    """Bodies that no row of the archive has."""

    def step(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        files, counted = Files(), 0
        for batch in batches:
            for row in batch.to_pylist():
                counted += 1
                path = f"{archive}/{row['body']}"
                try:
                    digest, _ = _digest_of(files, path, 0)
                except OSError as error:
                    why = os.strerror(error.errno or 0)
                    yield from _batched(iter([_Row("storage", path, why, row["queue"])]))
                    continue
                if digest != row["sha256"]:
                    detail = f"the row says {row['sha256']}"
                    found = _Row(DIGEST, path, detail, row["queue"], row["id"], digest)
                    yield from _batched(iter([found]))
        yield from _batched(iter([_Row(_READ, detail=str(counted))]))

    return step


def _batched(rows: Iterator[_Row]) -> Iterator[pa.RecordBatch]:
    some = list(rows)
    if some:
        columns = [pa.array(column, pa.string()) for column in zip(*some, strict=True)]
        yield pa.RecordBatch.from_arrays(columns, schema=_SCHEMA)
