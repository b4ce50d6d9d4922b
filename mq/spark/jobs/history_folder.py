"""The folder of a history: a Parquet file a table, and a report; all replaced at once.

    DIR/_run-{uuid}/{table}/rows.parquet    a history, as it was written
    DIR/_run-{uuid}/report.html
    DIR/_current                            a symbolic link: which of them is shown
    DIR/{table}, DIR/report.html            symbolic links, _current/{table}: what readers open
    DIR/_lock                               locked (flock) by whoever writes one

One rename, of `_current`, shows the next history, whole and flushed. The one before stays until
another is begun, for who reads it still.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mq.model.errors import MqError
from mq.spark.jobs.history_assembly import Row
from mq.spark.jobs.history_tables import TABLES
from mq.store.disk.files import Files, is_gone

_ROWS_FILE: Final = "rows.parquet"
_REPORT: Final = "report.html"
_CURRENT: Final = "_current"
_NEXT: Final = "_next"
_LOCK: Final = "_lock"
_RUN: Final = "_run-"
_ROWS_AT_ONCE: Final = 50_000
_US_PER_MS: Final = 1000
_KINDS: Final = {
    "STRING": pa.string(),
    "ARRAY<STRING>": pa.list_(pa.string()),
    "INT": pa.int32(),
    "LONG": pa.int64(),
    "DOUBLE": pa.float64(),
    "TIMESTAMP": pa.timestamp("us", tz="UTC"),
}


@dataclass(eq=False)
class FolderTaken(MqError):
    """A folder that a history cannot be written to."""

    why: str

    def __str__(self) -> str:
        return f"no history is written: {self.why}"


def schema_of(columns: str) -> pa.Schema:
    """Arrow's schema of columns in Spark's words, as TABLES has them."""
    pairs = (column.strip().split(" ") for column in columns.split(","))
    return pa.schema([(name, _KINDS[kind]) for name, kind in pairs])


class HistoryFolder:
    """A history's folder, locked by this process."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    @contextmanager
    def writing(self, name: str) -> "Iterator[Run]":
        """The next history, called so. Once the block is over it is shown; where that raises, what
        was shown still is. Raises OSError. Durable on return: yes.
        """
        run = f"{self._path}/{_RUN}{name}"
        self._sweep({self._shown()})
        try:
            with ExitStack() as stack:
                self._files.mkdir(run)
                made = Run(self._files, run)
                stack.enter_context(made.tables())
                yield made
                made.close()
            self._files.sync_folder(run)
            self._show(f"{_RUN}{name}", has_report=made.has_report)
        except BaseException:
            if self._shown() != f"{_RUN}{name}":
                with contextlib.suppress(OSError):
                    _remove(self._files, run)
            raise

    def _show(self, run: str, *, has_report: bool) -> None:
        names = [*TABLES, *((_REPORT,) if has_report else ())]
        for name in names:
            with contextlib.suppress(FileExistsError):
                self._files.link(f"{self._path}/{name}", f"{_CURRENT}/{name}")
        self._files.sync_folder(self._path)
        following = f"{self._path}/{_NEXT}"
        with contextlib.suppress(FileNotFoundError):
            self._files.unlink(following)
        self._files.link(following, run)
        self._files.rename(following, f"{self._path}/{_CURRENT}")
        if not has_report:
            with contextlib.suppress(FileNotFoundError):
                self._files.unlink(f"{self._path}/{_REPORT}")
        self._files.sync_folder(self._path)

    def _shown(self) -> str | None:
        return self._files.linked(f"{self._path}/{_CURRENT}")

    def _sweep(self, kept: "set[str | None]") -> None:
        """Takes other histories away: those of runs that were killed, and old ones."""
        for entry in list(self._files.entries(self._path)):
            if entry.name.startswith(_RUN) and entry.name not in kept:
                _remove(self._files, entry.path)


@contextmanager
def owned(files: Files, to: Path) -> Iterator[HistoryFolder]:
    """The folder, made where it is missing (not the one that it lies in), for this process alone.
    Raises FolderTaken when it is another's, or another process writes there; OSError.
    """
    path = os.path.abspath(to)
    with contextlib.suppress(FileExistsError):
        files.mkdir(path)
        files.sync_folder(os.path.dirname(path))
    for name in (*TABLES, _REPORT):
        status = files.status(f"{path}/{name}")
        if status is not None and files.linked(f"{path}/{name}") != f"{_CURRENT}/{name}":
            raise FolderTaken(f"{path}/{name} is none of a history's: say another folder")
    descriptor = files.open_kept(f"{path}/{_LOCK}")
    try:
        if not files.lock(descriptor):
            raise FolderTaken(f"another process writes to {path}")
        yield HistoryFolder(files, path)
    finally:
        files.close(descriptor)


@dataclass(eq=False, slots=True)
class Run:
    """A history that is being written."""

    _files: Files
    _path: str
    has_report: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    """How many each table has."""
    _writers: "dict[str, _Table]" = field(default_factory=dict)

    @contextmanager
    def tables(self) -> Iterator[None]:
        """All tables, open; closed when the block is over, one way or another."""
        with ExitStack() as stack:
            for name, columns in TABLES.items():
                folder = f"{self._path}/{name}"
                self._files.mkdir(folder)
                descriptor = self._files.create(f"{folder}/{_ROWS_FILE}")
                stack.callback(self._files.close, descriptor)
                table = _Table(self._files, descriptor, schema_of(columns))
                stack.callback(table.abandon)
                self._writers[name] = table
                self.rows[name] = 0
            yield

    def add(self, tables: Mapping[str, Iterable[Row]]) -> None:
        """Puts rows behind those that tables have. Raises OSError."""
        for name, rows in tables.items():
            self.rows[name] += self._writers[name].add(rows)

    def close(self) -> None:
        """Ends all tables. Raises OSError. Durable on return: yes, but for the run's folder."""
        for name, writer in self._writers.items():
            writer.close()
            self._files.sync_folder(f"{self._path}/{name}")
        self._writers.clear()

    def report(self, render: "Callable[[Mapping[str, list[dict[str, Any]]]], str]") -> None:
        """Closes the tables, and writes what `render` makes of their rows. Raises OSError. Durable
        on return: yes, but for the run's folder.
        """
        self.close()
        read = {name: _read(f"{self._path}/{name}/{_ROWS_FILE}") for name in TABLES}
        text = render(read).encode("utf-8")
        descriptor = self._files.create(f"{self._path}/{_REPORT}")
        try:
            self._files.write(descriptor, text)
            self._files.sync(descriptor)
        finally:
            self._files.close(descriptor)
        self.has_report = True


class _Table:
    """A table's file while it grows; its memory does not."""

    def __init__(self, files: Files, descriptor: int, schema: pa.Schema) -> None:
        self._files = files
        self._descriptor = descriptor
        self._schema = schema
        self._waiting: list[Row] = []
        self._sink = _Sink(files, descriptor)
        self._writer = pq.ParquetWriter(self._sink, schema, compression="zstd")

    def add(self, rows: Iterable[Row]) -> int:
        before = len(self._waiting)
        self._waiting.extend(rows)
        added = len(self._waiting) - before
        if len(self._waiting) >= _ROWS_AT_ONCE:
            self._write()
        return added

    def close(self) -> None:
        self._write()
        self._writer.close()
        self._files.sync(self._descriptor)

    def abandon(self) -> None:
        """Writes no more: Arrow's writer would, when it is collected, where it was not closed."""
        self._sink.is_deaf = True

    def _write(self) -> None:
        if not self._waiting:
            return
        columns = zip(*self._waiting, strict=True)
        arrays = [_array(column, each) for column, each in zip(columns, self._schema, strict=True)]
        self._writer.write_batch(pa.RecordBatch.from_arrays(arrays, schema=self._schema))
        self._waiting.clear()


def _array(column: "tuple[Any, ...]", of: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(of.type):
        column = tuple(None if ms is None else ms * _US_PER_MS for ms in column)
    return pa.array(column, of.type)


class _Sink:
    """What pyarrow takes for a file that is open for writing; written by Files."""

    closed = False

    def __init__(self, files: Files, descriptor: int) -> None:
        self.is_deaf = False
        self._files = files
        self._descriptor = descriptor
        self._written = 0

    def write(self, data: bytes) -> int:
        """See io."""
        view = memoryview(data)
        if not self.is_deaf:
            self._files.write(self._descriptor, view)
        self._written += len(view)
        return len(view)

    def tell(self) -> int:
        """See io."""
        return self._written

    def flush(self) -> None:
        """See io: there is nothing between this and the file."""

    def close(self) -> None:
        """See io: the descriptor is another's."""


def _read(path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def _remove(files: Files, folder: str) -> None:
    """Takes a folder of this module's making away, with all in it."""
    for entry in list(files.entries(folder)):
        status = files.status(entry.path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            _remove(files, entry.path)
        else:
            with contextlib.suppress(FileNotFoundError):
                files.unlink(entry.path)
    try:
        files.rmdir(folder)
    except OSError as error:
        if not is_gone(error) and error.errno != errno.ENOTEMPTY:
            raise
