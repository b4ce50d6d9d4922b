"""What a task of the archive writes: Parquet files of one queue and day each, on stable media when
the task says what they are.

No Spark here. All files of an attempt lie flat in the folder of staging, under names that no other
attempt has; which of them count is decided by the commit.
"""

import contextlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from mq.model.bulk_limits import (
    ARCHIVED_FILE_BYTES_MAX,
    ARCHIVED_HELD_BYTES_MAX,
    ARCHIVED_HELD_ROWS_MAX,
    ARCHIVED_OPEN_FILES_MAX,
)
from mq.spark.jobs.archive_rows import FILE_SCHEMA, Body, Event, Rows
from mq.store.disk.files import Files
from mq.store.format.archive import RemovedName
from mq.store.format.history import date_of

SUFFIX: Final = ".parquet"
BODIES: Final = "_bodies"
_COMPRESSION: Final = "zstd"
_WRITTEN_BYTES: Final = 1 << 20
# The others are of many values, or of values that no question is asked of.
_DICTIONARY: Final = ["key", "removal", "reason", "priority", "receives", "damaged", "batch"]
_STATISTICS: Final = ["id", "published", "removed", "priority", "receives", "size", "batch"]


class Place(NamedTuple):
    """What a file is of: a queue, and a day as its folder has it."""

    queue: str
    day: str

    @property
    def folder(self) -> str:
        """Below the archive."""
        return f"queue={self.queue}/day={self.day}"


@dataclass(frozen=True, slots=True)
class Written:
    """A file that was written: its name, in staging and in the archive; the folder below the
    archive that it goes to; and what it has.
    """

    name: str
    folder: str
    messages: int
    size_bytes: int
    body_bytes: int


class _Sink(io.RawIOBase):
    """A file of Files as pyarrow writes to one."""

    def __init__(self, files: Files, path: str) -> None:
        super().__init__()
        self._files = files
        self._descriptor = files.create(path)
        self.size = 0

    def writable(self) -> bool:
        return True

    def write(self, data: "bytes | memoryview") -> int:  # type: ignore[override]
        self._files.write(self._descriptor, data)
        self.size += len(data)
        return len(data)

    def sync(self) -> None:
        self._files.sync(self._descriptor)

    def close(self) -> None:
        """Gives the descriptor back; may be called again."""
        super().close()
        if self._descriptor >= 0:
            self._files.close(self._descriptor)
            self._descriptor = -1


class ParquetFile:
    """One file that is being written. Raises OSError."""

    def __init__(self, files: Files, path: str) -> None:
        self._sink = _Sink(files, path)
        # pyarrow writes many small pieces.
        self._buffer = io.BufferedWriter(self._sink, _WRITTEN_BYTES)  # type: ignore[type-var]
        try:
            self._writer = pq.ParquetWriter(
                pa.PythonFile(self._buffer, mode="w"),
                FILE_SCHEMA,
                compression=_COMPRESSION,
                use_dictionary=_DICTIONARY,
                write_statistics=_STATISTICS,
            )
        except BaseException:
            self._close()
            raise

    @property
    def size(self) -> int:
        """Its bytes so far."""
        return self._sink.size

    def write(self, table: pa.Table) -> None:
        """Puts rows behind those that are there, as a group of their own. Durable: no."""
        self._writer.write_table(table, row_group_size=max(1, table.num_rows))

    def finish(self) -> int:
        """Its bytes. Durable on return: yes, but for its name."""
        try:
            self._writer.close()
            self._buffer.flush()
            self._sink.sync()
            return self._sink.size
        finally:
            self._close()

    def abandon(self) -> None:
        """Gives it up: what there is of it stays, and is nobody's."""
        with contextlib.suppress(OSError, pa.ArrowException):
            self._writer.close()
        self._close()

    def _close(self) -> None:
        """After `flush` nothing is written here."""
        with contextlib.suppress(OSError):
            self._buffer.close()


@dataclass(slots=True)
class _Part:
    """The rows of a place that are held, and the file that they go to."""

    rows: Rows
    name: str = ""
    file: ParquetFile | None = None
    messages: int = 0
    body_bytes: int = 0


class Parts:
    """A task's files: rows go in, in any order of places, and lie in memory up to a limit."""

    def __init__(self, files: Files, staging: str, batch: int, number: int) -> None:
        self._files = files
        self._staging = staging
        self._batch = batch
        self._prefix = f"{batch:09d}-{number:05d}"
        self._parts: dict[Place, _Part] = {}
        self._held_bytes = self._held_rows = 0
        self.written: list[Written] = []
        """Those that are finished."""

    def new_name(self, suffix: str = SUFFIX) -> str:
        """A name in staging that nobody has."""
        return f"{self._prefix}-{uuid4().hex}{suffix}"

    def add(
        self,
        message: RemovedName,
        mtime_ns: int,
        came_ms: int,
        body: Body,
        events: Sequence[Event] | None,
    ) -> None:
        """Raises OSError."""
        place = Place(message.queue.text, date_of(came_ms))
        part = self._parts.get(place)
        if part is None:
            part = self._parts[place] = _Part(Rows(self._batch))
        before = part.rows.held_bytes
        part.rows.add(message, mtime_ns, came_ms, body, events)
        self._held_bytes += part.rows.held_bytes - before
        self._held_rows += 1
        if self._held_bytes >= ARCHIVED_HELD_BYTES_MAX or self._held_rows >= ARCHIVED_HELD_ROWS_MAX:
            self._write_out()

    def finish(self) -> list[Written]:
        """All files. Durable on return: yes, but for their names. Raises OSError."""
        for place in list(self._parts):
            self._write(place)
            self._finish(place)
        return self.written

    def abandon(self) -> None:
        """Gives the descriptors back."""
        for part in self._parts.values():
            if part.file is not None:
                part.file.abandon()

    def _write_out(self) -> None:
        """Writes what is held; files beyond those that may be open, and full ones, are finished."""
        for place in list(self._parts):
            self._write(place)
            file = self._parts[place].file
            is_many = len(self._parts) > ARCHIVED_OPEN_FILES_MAX
            if is_many or (file is not None and file.size >= ARCHIVED_FILE_BYTES_MAX):
                self._finish(place)
        self._held_bytes = self._held_rows = 0

    def _write(self, place: Place) -> None:
        part = self._parts[place]
        if not part.rows.ids:
            return
        if part.file is None:
            part.name = self.new_name()
            part.file = ParquetFile(self._files, f"{self._staging}/{part.name}")
        part.file.write(part.rows.table())
        part.messages += len(part.rows.ids)
        part.body_bytes += sum(size or 0 for size in part.rows.sizes)
        part.rows = Rows(self._batch)

    def _finish(self, place: Place) -> None:
        part = self._parts.pop(place)
        if part.file is not None:
            size = part.file.finish()
            self.written.append(
                Written(part.name, place.folder, part.messages, size, part.body_bytes)
            )
