"""Lakehouse tables that a drain, a stream or an archive adds its files to: Delta Lake and Apache
Iceberg. No Spark here.

The job's own commit comes first and names the files. A table takes each batch in one commit that
also stores the batch's number: Delta in an application transaction, Iceberg in a property of the
table. A batch that is tried again is therefore added once, also after the table's older snapshots
have expired. The libraries (extras `delta` and `iceberg`) are imported at the first use.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Literal, Protocol
from urllib.parse import unquote, urlsplit

import pyarrow as pa

from mq.model.errors import MqError
from mq.spark.jobs.drained_folder import Commit, Part
from mq.store.disk.files import Files

TableFormat = Literal["delta", "iceberg"]
TABLES: Final[tuple[TableFormat, ...]] = ("delta", "iceberg")
"""The formats of tables; their files are Parquet."""
DELTA_LOG: Final = "_delta_log"

_PROPERTY: Final = "mq.batch."
_HAS_DELETED: Final = "may have deleted rows in its files: read the table itself"
# What a writer must know of a table to which files are added: nothing, for these. Constraints,
# generated columns and renamed columns need more.
_FEATURES: Final = frozenset(
    {
        "appendOnly", "changeDataFeed", "checkpointProtection", "deletionVectors", "invariants",
        "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck",
    }
)  # fmt: skip
_PLAIN_WRITERS: Final = (1, 2)
_WRITERS_WITH_FEATURES: Final = 7


@dataclass(eq=False)
class TableRefused(MqError):
    """The table does not take the rows."""

    table: str
    why: str

    def __str__(self) -> str:
        return f"the table {self.table} {self.why}"


class Table(Protocol):
    """The table of a folder."""

    def files(self) -> list[str]:
        """The paths of all files that have its rows. Raises TableRefused if some rows of a file are
        deleted, since only the table says which.
        """
        ...

    def check(self, schema: pa.Schema) -> None:
        """Makes the table if there is none. Raises TableRefused if it does not take rows of this
        schema.
        """

    def add(self, commit: Commit, schema: pa.Schema) -> None:
        """Adds a committed batch's files, unless the table has the batch. Raises TableRefused; then
        the batch can be added again. Durable on return: yes, on a local disk.
        """


class NoTable:
    """A plain folder: a file's name is all that readers need."""

    def files(self) -> list[str]:
        return []

    def check(self, schema: pa.Schema) -> None: ...

    def add(self, commit: Commit, schema: pa.Schema) -> None: ...


class DeltaTable:
    """A Delta table in a folder of this machine. `writer`: the id under which batches count."""

    def __init__(self, folder: str, writer: str, files: Files) -> None:
        self._folder = folder
        self._writer = writer
        self._files = files

    def files(self) -> list[str]:
        """See Table."""
        delta = _library("deltalake", "delta")
        with _refusing(self._folder):
            table = delta.DeltaTable(self._folder)
            if "deletionVectors" in (table.protocol().reader_features or ()):
                raise TableRefused(self._folder, _HAS_DELETED)
            return [_path(path) for path in table.file_uris()]

    def check(self, schema: pa.Schema) -> None:
        """See Table."""
        delta = _library("deltalake", "delta")
        with _refusing(self._folder):
            if not delta.DeltaTable.is_deltatable(self._folder):
                delta.DeltaTable.create(self._folder, schema, mode="error")
            self._checked(delta, schema)

    def add(self, commit: Commit, schema: pa.Schema) -> None:
        """See Table."""
        delta, actions = _library("deltalake", "delta"), _library("deltalake.transaction", "delta")
        with _refusing(self._folder):
            table = self._checked(delta, schema)
            has = table.transaction_version(self._writer)
            if has is None or has < commit.number:
                added = [
                    actions.AddAction(
                        path=part.name,
                        size=part.size_bytes,
                        partition_values={},
                        modification_time=self._changed_ms(part.name),
                        data_change=True,
                        stats=json.dumps(_statistics(part)),
                    )
                    for part in commit.parts
                ]
                once = actions.Transaction(self._writer, commit.number)
                table.create_write_transaction(
                    added,
                    "append",
                    table.schema(),
                    commit_properties=actions.CommitProperties(app_transactions=[once]),
                )
        # What an earlier process added may not be on stable media either.
        _flush(self._files, f"{self._folder}/{DELTA_LOG}")

    def _checked(self, delta: Any, schema: pa.Schema) -> Any:
        table = delta.DeltaTable(self._folder)
        there = table.protocol()
        features = set(there.writer_features or ())
        version = there.min_writer_version
        if version not in (*_PLAIN_WRITERS, _WRITERS_WITH_FEATURES) or features - _FEATURES:
            asks = ", ".join(sorted(features - _FEATURES)) or f"version {version} of the protocol"
            raise TableRefused(self._folder, f"asks its writers for {asks}, which mq does not have")
        if table.metadata().partition_columns:
            raise TableRefused(self._folder, "is partitioned; mq adds files of mixed rows")
        check_columns(self._folder, pa.schema(table.schema().to_arrow()), schema)
        return table

    def _changed_ms(self, name: str) -> int:
        status = self._files.status(f"{self._folder}/{name}")
        return 0 if status is None else status.st_mtime_ns // 1_000_000


class IcebergTable:
    """An Iceberg table of a catalog, `CATALOG.NAMESPACE.TABLE`, whose data files are in a folder of
    this machine.
    """

    def __init__(self, name: str, folder: str, writer: str, files: Files) -> None:
        """Raises TableRefused if the name is none."""
        self._name = name
        self._folder = folder
        self._property = f"{_PROPERTY}{writer}"
        self._files = files
        self._catalog_name, _, rest = name.partition(".")
        self._identifier = tuple(rest.split("."))
        if len(self._identifier) < 2 or not all((self._catalog_name, *self._identifier)):
            raise TableRefused(name, "has no name such as CATALOG.NAMESPACE.TABLE")

    def files(self) -> list[str]:
        """See Table."""
        with _refusing(self._name):
            found = list(self._catalog().load_table(self._identifier).scan().plan_files())
            if any(each.delete_files for each in found):
                raise TableRefused(self._name, _HAS_DELETED)
            return [_path(each.file.file_path) for each in found]

    def check(self, schema: pa.Schema) -> None:
        """See Table. Also makes the namespace."""
        with _refusing(self._name):
            catalog = self._catalog()
            catalog.create_namespace_if_not_exists(self._identifier[:-1])
            self._checked(catalog.create_table_if_not_exists(self._identifier, schema), schema)

    def add(self, commit: Commit, schema: pa.Schema) -> None:
        """See Table."""
        with _refusing(self._name):
            table = self._checked(self._catalog().load_table(self._identifier), schema)
            if int(table.properties.get(self._property, 0)) < commit.number:
                paths = [f"file://{self._folder}/{part.name}" for part in commit.parts]
                said = {self._property: str(commit.number)}
                with table.transaction() as adding:
                    adding.set_properties(said)
                    # The property says whether it is added; the check would read all manifests.
                    adding.add_files(paths, said, check_duplicate_files=False)
        for place in {os.path.dirname(table.metadata_location), f"{table.location()}/metadata"}:
            parts = urlsplit(place)
            if parts.scheme in ("", "file"):
                _flush(self._files, unquote(parts.path))

    def _catalog(self) -> Any:
        return _library("pyiceberg.catalog", "iceberg").load_catalog(self._catalog_name)

    def _checked(self, table: Any, schema: pa.Schema) -> Any:
        if table.spec().fields:
            raise TableRefused(self._name, "is partitioned; mq adds files of mixed rows")
        check_columns(self._name, table.schema().as_arrow(), schema)
        return table


def kind_of(format_: str, table: str | None) -> str:
    """The kind of table of a format, as `table_of` takes it. Raises ValueError unless iceberg, and
    no other format, has a `table`.
    """
    if (format_ == "iceberg") is (table is None):
        raise ValueError("a table has the format iceberg, and that format a table")
    if table is not None:
        return f"iceberg:{table}"
    return format_ if format_ in TABLES else ""


def table_of(kind: str, folder: str, writer: str, files: Files) -> Table:
    """The table of a folder. `kind`: "" for none, `delta`, or `iceberg:CATALOG.NAMESPACE.TABLE`.
    Raises TableRefused.
    """
    if kind == "delta":
        return DeltaTable(folder, writer, files)
    if kind:
        return IcebergTable(kind.removeprefix("iceberg:"), folder, writer, files)
    return NoTable()


def check_columns(table: str, there: pa.Schema, rows: pa.Schema) -> None:
    """Raises TableRefused unless a table with the columns `there` takes the rows as they are. A
    column that the rows do not have must be nullable.
    """
    for field in rows:
        if field.name not in there.names:
            said = ", ".join(there.names)
            raise TableRefused(
                table, f"has no column {field.name}, only {said}: add it, or say another"
            )
        has, comes = _kind(there.field(field.name).type), _kind(field.type)
        if has != comes:
            raise TableRefused(
                table, f"has {has} in its column {field.name}, and the rows have {comes}"
            )
    for field in there:
        if field.name not in rows.names and not field.nullable:
            raise TableRefused(table, f"has a column {field.name} that must not be null")


def _statistics(part: Part) -> dict[str, Any]:
    """A file's statistics as Delta has them: its rows, and the values in its folders' names."""
    values = dict(each.split("=", 1) for each in part.name.split("/")[:-1])
    found: dict[str, Any] = {"numRecords": part.messages}
    if values:
        found |= {"minValues": values, "maxValues": values, "nullCount": dict.fromkeys(values, 0)}
    return found


def _path(said: str) -> str:
    """A file's path: of a URL, or as it is."""
    return said if said.startswith("/") else unquote(urlsplit(said).path)


def _kind(kind: Any) -> str:
    """A type by name, without what differs between libraries for the same values."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return f"array<{_kind(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"map<{_kind(kind.key_type)},{_kind(kind.item_type)}>"
    if pa.types.is_struct(kind):
        return f"struct<{','.join(f'{each.name} {_kind(each.type)}' for each in kind)}>"
    if pa.types.is_timestamp(kind):
        return "timestamp" if kind.tz else "timestamp without a zone"
    text = str(kind).removeprefix("large_").removesuffix("_view")
    return {"int8": "int32", "int16": "int32"}.get(text, text)


def _library(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        needed = f"needs the extra {extra}: pip install 'mq[{extra}]' ({error})"
        raise TableRefused(f"of {module.partition('.')[0]}", needed) from None


@contextmanager
def _refusing(table: str) -> Iterator[None]:
    """Says errors of the libraries as TableRefused: each library has its own, with no parent of
    their own.
    """
    try:
        yield
    except (MqError, OSError, MemoryError):
        raise
    except Exception as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise TableRefused(table, f"did not take the rows: {lines[0]}") from error


def _flush(files: Files, folder: str) -> None:
    """Flushes all of the folder's file system: the libraries flush nothing. Raises OSError."""
    descriptor = files.open_folder(folder)
    try:
        files.sync_file_system(descriptor)
    finally:
        files.close(descriptor)
