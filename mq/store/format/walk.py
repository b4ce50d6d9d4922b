"""Walking a folder with its buckets, and what lies below those: every name, in no order."""

import os
from collections.abc import Iterable, Iterator

from mq.store.disk.files import Files, is_gone
from mq.store.format.bucket_names import is_deep, parse_bucket


def walk(files: Files, top: str) -> "Iterator[tuple[str, os.DirEntry[str]]]":
    """What lies in a folder and in its buckets, each with its bucket; buckets themselves are left
    out, other folders are not. A bucket that goes meanwhile is passed over.

    Raises OSError when `top` cannot be listed.
    """
    for entry in files.entries(top):
        if not is_bucket(entry):
            yield "", entry
            continue
        bucket = f"{entry.name}/"
        for inner in entries_if_there(files, entry.path):
            if not is_deep_folder(inner):
                yield bucket, inner
                continue
            deep = f"{bucket}{inner.name}/"
            for innermost in entries_if_there(files, inner.path):
                yield deep, innermost


def walk_spots(
    files: Files, top: str, spots: Iterable[str]
) -> "Iterator[tuple[str, os.DirEntry[str]]]":
    """What lies in these folders of one, each named with a slash behind it, as leases are. One that
    goes meanwhile is passed over.
    """
    for spot in spots:
        for entry in entries_if_there(files, f"{top}/{spot}"[:-1]):
            yield spot, entry


def folders(files: Files, top: str) -> list[tuple[str, str]]:
    """The buckets of a folder, and those below them: (bucket, path), the inner ones first."""
    found = []
    for bucket, path in buckets(files, top):
        for inner in entries_if_there(files, path):
            if is_deep_folder(inner):
                found.append((f"{bucket}{inner.name}/", inner.path))  # noqa: PERF401
        found.append((bucket, path))
    return found


def rows_of(files: Files, top: str) -> list[tuple[str, ...]]:
    """A folder and its buckets, to be flushed beside others; none where it is not there."""
    try:
        return [(top,), *((path,) for _, path in folders(files, top))]
    except FileNotFoundError:
        return []


def buckets(files: Files, top: str) -> "Iterator[tuple[str, str]]":
    """The buckets of a folder without those below them: (bucket, path)."""
    for entry in files.entries(top):
        if is_bucket(entry):
            yield f"{entry.name}/", entry.path


def is_bucket(entry: "os.DirEntry[str]") -> bool:
    """Whether it is a bucket's folder. A symbolic link is none."""
    return parse_bucket(entry.name) is not None and entry.is_dir(follow_symlinks=False)


def is_deep_folder(entry: "os.DirEntry[str]") -> bool:
    """Whether, in a bucket, it is a folder of what the bucket could not hold."""
    return is_deep(entry.name) and entry.is_dir(follow_symlinks=False)


def entries_if_there(files: Files, folder: str) -> "Iterator[os.DirEntry[str]]":
    """The folder's entries; none when it is gone."""
    try:
        yield from files.entries(folder)
    except OSError as error:
        if not is_gone(error):
            raise
