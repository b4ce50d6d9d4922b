"""A file that says who may do what: read, and trusted only where nobody else can write it.

Blocking.
"""

import os
import stat
from pathlib import Path
from typing import Final

_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


class Untrusted(Exception):
    """What is wrong with the file, for people; its path is for the caller to say."""


def read_trusted(path: Path, bytes_max: int) -> bytes:
    """What the file has. Raises Untrusted: it cannot be read, is none, is larger than `bytes_max`,
    or its group or others may write it. Who may read it does not matter.
    """
    try:
        if path.exists() and not path.is_file():  # Opening a pipe would wait for its other end.
            raise Untrusted("is no file")
        with path.open("rb") as file:
            # Of what was opened: the name may be another's by now.
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(bytes_max + 1)
    except OSError as error:
        raise Untrusted(str(error.strerror)) from None
    if mode & _WRITABLE_BY_OTHERS:
        raise Untrusted(f"others may write it (mode {stat.S_IMODE(mode):04o}); chmod go-w")
    if len(data) > bytes_max:
        raise Untrusted(f"is larger than {bytes_max} bytes")
    return data
