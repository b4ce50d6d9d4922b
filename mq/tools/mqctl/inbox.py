"""A folder that takes messages, each its body in a file that has the message's id as its name.

What `keep` has returned for survives a power cut; a message that comes a second time takes the
place of the first, whole. So a message that is deleted after `keep` is in the folder for good.
"""

import contextlib
import os
import re
import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mq.store.disk.files import Files

# Of an id; what has this form leads out of no folder, and is not hidden.
_NAME: Final = re.compile(r"[0-9A-Za-z][0-9A-Za-z,=._-]{0,254}")


class BadFileName(Exception):
    """An id that can be no file's name."""


class Inbox:
    """The folder. Made when it is missing. Nothing but `keep` writes to it."""

    def __init__(self, folder: Path, files: Files) -> None:
        self._folder = str(folder)
        self._files = files

    def open(self) -> None:
        """Makes the folder where it is not there. Its name is durable on return, whoever made it,
        where one may look into the folder that it is in. Blocks. Raises OSError.
        """
        if not self._files.is_there(self._folder):
            self._files.mkdir(self._folder)
        self._files.close(self._files.open_folder(self._folder))
        with contextlib.suppress(PermissionError):
            self._files.sync_folder(os.path.dirname(os.path.abspath(self._folder)))

    def keep(self, messages: Sequence[tuple[str, bytes]]) -> list[str]:
        """Writes each (id, body); the files' paths. Durable on return: all of them, and their
        names. Blocks. Raises OSError, BadFileName: then some may be there, each whole.
        """
        kept = []
        for message_id, body in messages:
            if _NAME.fullmatch(message_id) is None:
                raise BadFileName(f"{message_id!r} can be no file's name")
            path = os.path.join(self._folder, message_id)
            self._keep(path, body)
            kept.append(path)
        if kept:
            self._files.sync_folder(self._folder)
        return kept

    def _keep(self, path: str, body: bytes) -> None:
        # Under a name of its own, so that two that receive the same message do not mix.
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
