"""A folder of messages: each body is a file whose name is the message's id.

What `keep` returned for survives a power cut. A message that is delivered again replaces its file
as a whole. So a message may be deleted from the queue after `keep`.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mq.store.disk.files import Files

# The form of an id. Such a name stays in the folder and is not hidden.
_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z,=._-]{0,254}")


class BadFileName(Exception):
    """An id that cannot be the name of a file."""


class Inbox:
    """The folder. Only `keep` writes to it."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = str(folder)
        self._files = files

    def open(self) -> None:
        """Creates a missing folder. Its name is durable on return, unless the process may not open
        its parent. Blocks. Raises OSError.
        """
        if not self._files.is_there(self._folder):
            self._files.mkdir(self._folder)
        self._files.close(self._files.open_folder(self._folder))
        with contextlib.suppress(PermissionError):
            self._files.sync_folder(os.path.dirname(os.path.abspath(self._folder)))

    def keep(self, messages: Sequence[tuple[str, bytes]]) -> list[str]:
        """Writes each (id, body) and returns the paths. All files and names are durable on return.
        Blocks. Raises OSError, BadFileName: then some may exist, each whole.
        """
        kept = []
        for message_id, body in messages:
            if _NAME.fullmatch(message_id) is None:
                raise BadFileName(f"{message_id!r} cannot be the name of a file")
            path = os.path.join(self._folder, message_id)
            self._keep(path, body)
            kept.append(path)
        if kept:
            self._files.sync_folder(self._folder)
        return kept

    def _keep(self, path: str, body: bytes) -> None:
        # A name of its own: two processes may receive the same message.
        written = os.path.join(self._folder, f".{secrets.token_hex(8)}.part")
        descriptor = self._files.create(written)
        try:
            try:
                self._files.write(descriptor, body)
                self._files.sync(descriptor)
            finally:
                self._files.close(descriptor)
            self._files.rename(written, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.unlink(written)
            raise
