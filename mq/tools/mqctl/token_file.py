"""A file of tokens that is changed: a line more, or one less. Durable on return.

Whoever reads it sees it before or after a change, never between; two changes at a time wait for
each other. What stands in it beside, comments too, stays.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path

from mq.access.callers import Caller, Grant
from mq.access.errors import TokensUnusable
from mq.access.token_file import check_text, read_text, read_tokens
from mq.access.tokens import line_of, name_of
from mq.store.disk.files import Files


class NameTaken(Exception):
    """A token of the file is called so already."""


class NoSuchToken(Exception):
    """No token of the file is called so."""


class TokenFile:
    """Lines of tokens in a file. Blocking. Everything raises TokensUnusable, OSError."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        # What a link refers to is what is changed, and where it lies.
        self._path = path.resolve()
        self._files = files or Files()

    def callers(self) -> Sequence[Caller]:
        """Whose tokens there are, in the order of the lines."""
        return [each.caller for each in read_tokens(self._path)]

    def add(self, name: str, token: str, grants: Sequence[Grant]) -> None:
        """Adds a token's line; the file is made when it is missing, for its owner alone. Raises
        NameTaken.
        """
        with self._alone():
            text = ""
            if self._files.status(str(self._path)) is not None:
                if any(each.name == name for each in self.callers()):
                    raise NameTaken
                text = read_text(self._path)
            ended = text if not text or text.endswith("\n") else text + "\n"
            self._replace(f"{ended}{line_of(name, token, grants)}\n")

    def remove(self, name: str) -> None:
        """Takes a token's line away. Raises NoSuchToken."""
        with self._alone():
            if all(each.name != name for each in self.callers()):
                raise NoSuchToken
            lines = read_text(self._path).split("\n")
            self._replace("\n".join(each for each in lines if name_of(each) != name))

    def _replace(self, text: str) -> None:
        """The file has this text, and is as it was otherwise. Raises TokensUnusable where nobody
        could read it any more.
        """
        check_text(self._path, text)
        path, part = str(self._path), f"{self._path}.{secrets.token_hex(8)}.part"
        before = self._files.status(path)
        descriptor = self._files.create(part)
        try:
            self._files.write(descriptor, text.encode())
            if before is not None:
                # Whoever could read it is to be able to.
                self._keep_owner(part, before)
                self._files.set_mode(part, stat.S_IMODE(before.st_mode))
            self._files.sync(descriptor)
            self._files.rename(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.unlink(part)
            raise
        finally:
            self._files.close(descriptor)
        self._files.sync_folder(str(self._path.parent))

    def _keep_owner(self, part: str, before: os.stat_result) -> None:
        made = self._files.status(part)
        if made is None or (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
            self._files.set_owner(part, before.st_uid, before.st_gid)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes a file of the folder meanwhile, who asks in this way."""
        try:
            folder = self._files.open_folder(str(self._path.parent))
        except OSError as error:
            raise TokensUnusable(f"tokens {self._path}: {error.strerror}") from None
        try:
            self._files.wait_for_lock(folder)
            yield
        finally:
            self._files.close(folder)
