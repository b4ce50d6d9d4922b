"""Replaces a small file as a whole: writes it beside its place and renames it. It is flushed, or
not if it is a hint.
"""

import contextlib
import os

from mq.store.disk.files import Files, is_gone
from mq.store.disk.steps import Flush, Steps


def replace_file(
    files: Files, written: str, path: str, content: bytes = b"", mtime_ns: int | None = None
) -> Steps[None]:
    """Replaces `path` by a file with this content and mtime. `written`, in the same folder, is a
    name that only this process uses. A reader finds the old file or the new one. Durable on return:
    yes.
    """
    yield from write_over(files, written, path, content, mtime_ns)
    yield Flush(folders=(os.path.dirname(path),))


def write_over(
    files: Files, written: str, path: str, content: bytes, mtime_ns: int | None = None
) -> Steps[None]:
    """Likewise, for a folder that the caller flushes. Durable on return: the content."""
    with contextlib.suppress(FileNotFoundError):
        files.unlink(written)  # An earlier try of this process, which failed.
    descriptor = files.create(written)
    try:
        files.write(descriptor, content)
        if mtime_ns is not None:
            files.stamp(descriptor, mtime_ns)
        if content:
            yield Flush(files=(descriptor,))
        made = files.descriptor_status(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(written)
        raise
    finally:
        files.close(descriptor)
    _rename(files, written, path, made)


def _rename(files: Files, written: str, path: str, made: os.stat_result) -> None:
    try:
        files.rename(written, path)
    except OSError as error:
        there = files.status(path) if is_gone(error) else None
        # NFS may have done it and lost the answer.
        if there is None or not os.path.samestat(there, made):
            with contextlib.suppress(OSError):
                files.unlink(written)
            raise


def replace_hint(
    files: Files, written: str, path: str, content: bytes, mtime_ns: int | None = None
) -> None:
    """Like `replace_file`, without a flush: a power cut leaves an older file, a torn one, or none.
    Raises OSError, and leaves `path` unchanged then.
    """
    with contextlib.suppress(FileNotFoundError):
        files.unlink(written)  # As above.
    try:
        descriptor = files.create(written)
        try:
            files.write(descriptor, content)
            if mtime_ns is not None:
                files.stamp(descriptor, mtime_ns)
        finally:
            files.close(descriptor)
        files.rename(written, path)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(written)
        raise
