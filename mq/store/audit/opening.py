"""A root for whoever holds it against FORMAT.md: nothing is made or tried, folders may be away."""

import os
import stat
from pathlib import Path
from typing import Final

from mq.model.clock import Clock
from mq.model.errors import StartupError
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.layout import FORMAT_LINE, Layout

_LINE_BYTES_MAX: Final = 100


def open_for_audit(path: str | Path, files: Files, clock: Clock, kind: str) -> Root:
    """The root at what the path leads to; whose a link is says nothing. `kind`: of which program.
    Raises StartupError when it is none, is of another format, or may not be read.
    """
    root = Root.of(Layout.of(os.path.realpath(path)), files, clock, kind=kind)
    check_is_root(root)
    return root


def check_is_root(root: Root) -> None:
    """Raises StartupError when it is no root of this format, or may not be read."""
    top = root.layout.root
    try:
        if not os.path.isdir(top):
            raise StartupError(f"{top} is no mq root: there is no such folder")
        status = root.files.status(root.layout.format)
        if status is None:
            raise StartupError(f"{top} is no mq root: {root.layout.format} is not there")
        if not stat.S_ISREG(status.st_mode):
            raise StartupError(f"{top} is no mq root: {root.layout.format} is no file")
        line = root.files.read_file(root.layout.format, _LINE_BYTES_MAX).decode("ascii", "replace")
        for _ in root.files.entries(top):
            break
    except OSError as error:
        raise StartupError(f"{top} cannot be read: {os.strerror(error.errno or 0)}") from error
    if line != FORMAT_LINE:
        known = FORMAT_LINE.strip()
        raise StartupError(f"{root.layout.format} says {line.strip()!r}; this mq knows {known!r}")
