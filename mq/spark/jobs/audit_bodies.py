"""Compares bodies with their digests: an archive's rows; removed messages that the archive has too;
and messages with a digest of their own (the header `x-attribute-sha256`, 64 hexadecimal digits).
Each file is read whole, which also finds files that the disk cannot read.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa

from mq.model.errors import MessageUnreadable
from mq.model.headers import parse_block
from mq.model.lifecycle import State
from mq.model.limits import CHUNK_BYTES, PACK_BYTES_MAX
from mq.model.names import MessageId, QueueName, messages_of
from mq.model.packs import bodies_in
from mq.spark.jobs.audit_findings import DIGEST, DIGEST_SAYS, Finding
from mq.spark.jobs.audit_tasks import Batched, Task, mapped, unpacked
from mq.spark.rows import arrow_schema
from mq.store.audit.findings import Breach, Violation
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
_ROWS: Final = ", ".join(f"{name} string" for name in _COLUMNS)
_SCHEMA: Final = arrow_schema(_ROWS)
_FOUND_MAX: Final = 100_000
_REPAIR: Final = "by hand: the body differs from the published one; only another copy helps"
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
    """Returns how many bodies were compared with a digest, and those that differ (the first
    100,000). `kept`: the rows of the archive in that folder. Raises what Spark raises.
    """
    rows = mapped(spark, folders, _FOLDERS_PER_ROW, _reading(task, kept is not None), _ROWS)
    if kept is not None:
        rows = _with_archive(rows, kept, str(archive))
    rows = rows.where(f"part != '{_REMOVED}'")
    counted = 0
    found: list[Finding] = []
    # Some rows are counts, a few per task.
    for row in rows.limit(_FOUND_MAX).collect():
        if row.part == _READ:
            counted += int(row.detail)
        elif row.part == DIGEST:
            found.append(Finding(DIGEST, DIGEST_SAYS, row.path, row.detail, row.queue, _REPAIR))
        else:
            queue = QueueName.parse(row.queue) if row.queue else None
            found.append(Finding.of(Violation(Breach.STORAGE, row.path, row.detail, queue)))
    return counted, found


def _with_archive(rows: "DataFrame", kept: "DataFrame", archive: str) -> "DataFrame":
    """Adds the archive's rows that differ from their digests, and the removed messages that differ
    from the archive.
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
        reader = _Reader(root.files, is_archived)
        for _, _, folders in unpacked(batches):
            for folder in folders:
                if folder.state is not None and folder.state is not State.NEW:
                    yield from _batched(reader.of_folder(screen, folder))
        yield from _batched([_Row(_READ, detail=str(reader.compared))])

    return step


class _Reader:
    """Reads bodies of messages; `compared` counts those with a digest."""

    def __init__(self, files: Files, is_archived: bool) -> None:
        self._files = files
        self._is_archived = is_archived
        self.compared = 0

    def of_folder(self, screen: Screen, folder: NameFolder) -> Iterator[_Row]:
        """Rows of removed messages that the archive may have, and of wrong or unreadable bodies."""
        is_removed = self._is_archived and folder.state is State.REMOVED
        for screened in screen.screened(folder):
            for queue, texts in screened.messages:
                before = "" if folder.queue is not None else entry_prefix(queue)
                for text in texts:
                    path = f"{screened.folder.path}/{before}{text}"
                    yield from self._of_message(queue, text, path, is_removed)

    def _of_message(
        self, queue: QueueName, text: str, path: str, is_removed: bool
    ) -> Iterator[_Row]:
        try:
            digests, block = _digests_of(self._files, path, MessageId.parse(text))
        except OSError as error:
            if not is_gone(error):
                yield _Row("storage", path, os.strerror(error.errno or 0), queue.text, text)
            return
        said = next((value for name, value in parse_block(block) if name.lower() == HEADER), None)
        for each, digest in digests.items():
            if is_removed:
                yield _Row(_REMOVED, path, "", queue.text, each, digest)
            if said is not None:
                self.compared += 1
                if said.lower() != digest:
                    yield _Row(DIGEST, path, f"its header says {said}", queue.text, each, digest)


def _digests_of(files: Files, path: str, message_id: MessageId) -> tuple[dict[str, str], bytes]:
    """The SHA-256 of a message's body, by its id, or of those of a pack's items (none of a
    damaged pack, which the audit reports); and the header block. Raises OSError.
    """
    if not message_id.items:
        digest, block = _digest_of(files, path, message_id.header_bytes)
        return {message_id.text: digest}, block
    content = files.read_file(path, PACK_BYTES_MAX + 1)
    try:
        bodies = bodies_in(content, message_id)
    except MessageUnreadable:
        return {}, b""
    items = messages_of(message_id.text)
    digests = [hashlib.sha256(body).hexdigest() for body in bodies]
    return dict(zip(items, digests, strict=True)), content[: message_id.header_bytes]


def _digest_of(files: Files, path: str, header_bytes: int) -> tuple[str, bytes]:
    """The SHA-256 of the body, and the header block before it. Raises OSError."""
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
    """Digests of the archive's bodies that are in files of their own."""

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
                    yield from _batched([_Row("storage", path, why, row["queue"])])
                    continue
                if digest != row["sha256"]:
                    detail = f"the row says {row['sha256']}"
                    wrong = _Row(DIGEST, path, detail, row["queue"], row["id"], digest)
                    yield from _batched([wrong])
        yield from _batched([_Row(_READ, detail=str(counted))])

    return step


def _batched(rows: Iterable[_Row]) -> Iterator[pa.RecordBatch]:
    some = list(rows)
    if some:
        yield pa.RecordBatch.from_pylist([row._asdict() for row in some], _SCHEMA)
