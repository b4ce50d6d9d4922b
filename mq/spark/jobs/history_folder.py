"""The folder of a history: a Parquet file per table, and a report; all replaced at once.

    DIR/_run-{uuid}/{table}/rows.parquet    a history, as it was written
    DIR/_run-{uuid}/report.html
    DIR/_current                            a symbolic link to the current history
    DIR/{table}, DIR/report.html            symbolic links, _current/{table}: readers open these
    DIR/_lock                               locked (flock) by the process that writes a history

One rename, of `_current`, publishes the next history, whole and flushed. The previous one stays for
its readers until another run begins.
"""

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from mq.model.errors import MqError
from mq.spark.jobs.folders import locked, remove_folder
from mq.spark.jobs.history_assembly import Row
from mq.spark.jobs.row_files import Output, ParquetRows
from mq.spark.rows import arrow_schema
from mq.store.core.root import unlink_if_there
from mq.store.disk.files import Files

TABLES: Final[Mapping[str, str]] = {
    # A row per queue: its figures, and their sources ("archive", "inodes", "history").
    "queues": "queue string, sources array<string>, first timestamp, last timestamp, "
    "published long, removed long, ready long, delayed long, leased long, sidelined long, "
    "bytes long, oldest_age_s double",
    # What happened in [start, start + step_s); an empty step has a row of zeros.
    "rates": "queue string, priority int, start timestamp, step_s long, published long, "
    "published_bytes long, fetched long, redelivered long, removed long, sidelined long",
    # `what`: publish-to-first-fetch, publish-to-removal; `start` null: the whole time.
    "latencies": "queue string, priority int, what string, start timestamp, step_s long, "
    "messages long, mean_s double, p50_s double, p90_s double, p99_s double, p999_s double, "
    "max_s double",
    # How many messages had how many receives: of the removed ones, as far as known.
    "receives": "queue string, priority int, receives int, messages long",
    # Bodies of [from, to) bytes; powers of two, and 0.
    "sizes": "queue string, priority int, bytes_from long, bytes_to long, messages long, "
    "bytes long",
    # At the end of each step: messages published and not yet removed, and the age of the oldest.
    "backlog": "queue string, priority int, at timestamp, messages long, bytes long, "
    "oldest_age_s double",
}


_ROWS_FILE: Final = "rows.parquet"
_REPORT: Final = "report.html"
_CURRENT: Final = "_current"
_NEXT: Final = "_next"
_LOCK: Final = "_lock"
_RUN: Final = "_run-"
_ROWS_AT_ONCE: Final = 50_000
_US_PER_MS: Final = 1000


@dataclass(eq=False)
class FolderTaken(MqError):
    """A history cannot be written to this folder."""

    why: str

    def __str__(self) -> str:
        return f"no history is written: {self.why}"


class HistoryFolder:
    """A history's folder, locked by this process."""

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    @contextmanager
    def writing(self, name: str) -> "Iterator[Run]":
        """Writes the next history, of this name, in a block of code. At the end of the block it
        becomes current; if the block raises, the previous history stays. Raises OSError. Durable on
        return: yes.
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
                    remove_folder(self._files, run)
            raise

    def _show(self, run: str, *, has_report: bool) -> None:
        names = [*TABLES, *((_REPORT,) if has_report else ())]
        for name in names:
            with contextlib.suppress(FileExistsError):
                self._files.link(f"{self._path}/{name}", f"{_CURRENT}/{name}")
        self._files.sync_folder(self._path)
        following = f"{self._path}/{_NEXT}"
        unlink_if_there(self._files, following)
        self._files.link(following, run)
        self._files.rename(following, f"{self._path}/{_CURRENT}")
        if not has_report:
            unlink_if_there(self._files, f"{self._path}/{_REPORT}")
        self._files.sync_folder(self._path)

    def _shown(self) -> str | None:
        return self._files.linked(f"{self._path}/{_CURRENT}")

    def _sweep(self, kept: "set[str | None]") -> None:
        """Removes other histories: those of killed runs, and old ones."""
        for entry in list(self._files.entries(self._path)):
            if entry.name.startswith(_RUN) and entry.name not in kept:
                remove_folder(self._files, entry.path)


@contextmanager
def owned(files: Files, to: Path) -> Iterator[HistoryFolder]:
    """Locks the folder for this process; creates it if it is missing, but not its parent. Raises
    FolderTaken if it belongs to something else, or another process writes to it; OSError.
    """
    path = os.path.abspath(to)
    with contextlib.suppress(FileExistsError):
        files.mkdir(path)
        files.sync_folder(os.path.dirname(path))
    for name in (*TABLES, _REPORT):
        status = files.status(f"{path}/{name}")
        if status is not None and files.linked(f"{path}/{name}") != f"{_CURRENT}/{name}":
            raise FolderTaken(f"{path}/{name} is none of a history's: say another folder")
    with locked(files, f"{path}/{_LOCK}", FolderTaken(f"another process writes to {path}")):
        yield HistoryFolder(files, path)


@dataclass(eq=False, slots=True)
class Run:
    """A history in progress."""

    _files: Files
    _path: str
    has_report: bool = False
    rows: dict[str, int] = field(default_factory=dict)
    """The number of rows of each table."""
    _writers: "dict[str, _Table]" = field(default_factory=dict)

    @contextmanager
    def tables(self) -> Iterator[None]:
        """Opens all tables, and closes them at the end of the block, however it ends."""
        with ExitStack() as stack:
            for name, columns in TABLES.items():
                folder = f"{self._path}/{name}"
                self._files.mkdir(folder)
                table = _Table(self._files, f"{folder}/{_ROWS_FILE}", arrow_schema(columns))
                stack.callback(table.abandon)
                self._writers[name] = table
                self.rows[name] = 0
            yield

    def add(self, tables: Mapping[str, Iterable[Row]]) -> None:
        """Appends rows to the tables. Raises OSError."""
        for name, rows in tables.items():
            self.rows[name] += self._writers[name].add(rows)

    def close(self) -> None:
        """Finishes all tables. Raises OSError. Durable on return: yes, except for the run's
        folder.
        """
        for name, writer in self._writers.items():
            writer.finish()
            self._files.sync_folder(f"{self._path}/{name}")
        self._writers.clear()

    def report(self, render: "Callable[[Mapping[str, list[dict[str, Any]]]], str]") -> None:
        """Closes the tables, and writes the report that `render` makes of their rows. Raises
        OSError. Durable on return: yes, except for the run's folder.
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
    """A table's file in progress; its memory does not grow."""

    def __init__(self, files: Files, path: str, schema: pa.Schema) -> None:
        self._schema = schema
        self._waiting: list[Row] = []
        self._file = ParquetRows(Output(files, path, is_hashed=False), schema, compression="zstd")

    def add(self, rows: Iterable[Row]) -> int:
        before = len(self._waiting)
        self._waiting.extend(rows)
        added = len(self._waiting) - before
        if len(self._waiting) >= _ROWS_AT_ONCE:
            self._write()
        return added

    def finish(self) -> None:
        self._write()
        self._file.finish()

    def abandon(self) -> None:
        self._file.abandon()

    def _write(self) -> None:
        if not self._waiting:
            return
        columns = zip(*self._waiting, strict=True)
        arrays = [_array(column, each) for column, each in zip(columns, self._schema, strict=True)]
        self._file.write(pa.Table.from_arrays(arrays, schema=self._schema))
        self._waiting.clear()


def _array(column: "tuple[Any, ...]", of: pa.Field) -> pa.Array:
    if pa.types.is_timestamp(of.type):
        column = tuple(None if ms is None else ms * _US_PER_MS for ms in column)
    return pa.array(column, of.type)


def _read(path: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows
