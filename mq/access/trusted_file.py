"""Reads files that grant rights, and trusts them only if no other user can write them.

Blocking.
"""

import os
import stat
from pathlib import Path
from typing import Final

CORRECT: Final = "correct its path, or its permissions"
"""What to do about a file that cannot be read."""

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH
_READABLE_BY_OTHERS: Final = stat.S_IROTH


class Untrusted(Exception):
    """Why the file is not trusted; the caller adds its path."""


def read_trusted(path: Path, bytes_max: int, is_secret: bool = False) -> bytes:
    """The file's contents. Raises Untrusted if it cannot be read, is not a regular file, is larger
    than `bytes_max`, or may be written by its group or others; `is_secret`: or read by others.
    """
    try:
        if path.exists() and not path.is_file():  # Opening a pipe would wait for its other end.
            raise Untrusted("it is not a regular file")
        with path.open("rb") as file:
            # The opened file's status: the name may refer to another file by now.
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise Untrusted(f"cannot read it: {error.strerror}; {CORRECT}") from None
    if mode & _WRITABLE_BY_OTHERS:
        raise Untrusted(f"others may write it (mode {stat.S_IMODE(mode):04o}); chmod go-w it")
    if is_secret and mode & _READABLE_BY_OTHERS:
        raise Untrusted(
            f"others may read it (mode {stat.S_IMODE(mode):04o}); chmod 600 it, or 640 for a group"
        )
    if len(data) > bytes_max:
        raise Untrusted(f"it is larger than {bytes_max} bytes")
    return data
