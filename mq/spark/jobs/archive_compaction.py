"""Small files of an archive made into few: what a plan is, and what its tasks do. No Spark here; a
commit swaps the files.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from mq.model.bulk_limits import (
    ARCHIVED_FILE_BYTES_MAX,
    ARCHIVED_HELD_BYTES_MAX,
    ARCHIVED_HELD_ROWS_MAX,
    SMALL_FILE_BYTES_MAX,
    SMALL_FILES_MAX,
)
from mq.spark.jobs.archive_folder import DataFile
from mq.spark.jobs.archive_parts import SUFFIX, ParquetFile
from mq.spark.jobs.archive_task import FILE, Fact
from mq.store.disk.files import Files


@dataclass(frozen=True, slots=True)
class Group:
    """Small files of one folder that become one file."""

    folder: str
    files: tuple[DataFile, ...]


def plan(files: Iterable[DataFile], small_max: int = SMALL_FILES_MAX) -> list[Group]:
    """Which files become one: of a folder that has more than `small_max` files under
    SMALL_FILE_BYTES_MAX bytes, those, as many together as ARCHIVED_FILE_BYTES_MAX lets. Pure.
    """
    folders: dict[str, list[DataFile]] = {}
    for file in files:
        if file.size < SMALL_FILE_BYTES_MAX:
            folders.setdefault(file.folder, []).append(file)
    return [
        Group(folder, group)
        for folder, small in sorted(folders.items())
        if len(small) > small_max
        for group in _filled(sorted(small, key=lambda file: file.name))
        if len(group) > 1
    ]


def _filled(files: Sequence[DataFile]) -> Iterator[tuple[DataFile, ...]]:
    """Neighbours by their names, and so by their batches."""
    taken: list[DataFile] = []
    size = 0
    for file in files:
        if taken and size + file.size > ARCHIVED_FILE_BYTES_MAX:
            yield tuple(taken)
            taken, size = [], 0
        taken.append(file)
        size += file.size
    if taken:
        yield tuple(taken)


def rewrite(files: Files, archive: str, staged: str, group: Group) -> Fact:
    """Writes a group's rows to one new file in the folder `staged`. Durable on return: yes, but for
    its name. Raises OSError, and pyarrow's errors for what is no Parquet of the archive's.
    """
    name = f"{group.files[0].name.partition('-')[0]}-c-{uuid4().hex}{SUFFIX}"
    target = ParquetFile(files, f"{staged}/{name}")
    try:
        messages = 0
        for table in _joined(archive, group):
            target.write(table)
            messages += table.num_rows
        size = target.finish()
    finally:
        target.abandon()
    return Fact(FILE, name, group.folder, messages, size, 0)


def _joined(archive: str, group: Group) -> Iterator[pa.Table]:
    """The rows of all files, as many at a time as may be held."""
    held: list[pa.Table] = []
    for file in group.files:
        for table in _tables(f"{archive}/{file.path}"):
            held.append(table)
            if (
                sum(each.nbytes for each in held) >= ARCHIVED_HELD_BYTES_MAX
                or sum(each.num_rows for each in held) >= ARCHIVED_HELD_ROWS_MAX
            ):
                yield pa.concat_tables(held)
                held = []
    if held:
        yield pa.concat_tables(held)


def _tables(path: str) -> Iterator[pa.Table]:
    """A file's rows, a group of them at a time, as it was written."""
    with pa.OSFile(path, "rb") as source:
        reader = pq.ParquetFile(source)
        for number in range(reader.num_row_groups):
            yield reader.read_row_group(number)
