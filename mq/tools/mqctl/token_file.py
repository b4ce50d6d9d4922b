"""Adds and removes lines of a token file, and of the secrets beside it. Durable on return.

Readers see the file before or after a change, never between. Concurrent changes wait for each
other. Other lines, comments too, stay.
"""

import contextlib
import os
import secrets
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from mq.access.callers import Caller, Grant
from mq.access.errors import TokensUnusable
from mq.access.secrets import parse_secrets, read_secrets, secrets_path
from mq.access.tokens import check_text, line_of, name_of, read_text, read_tokens
from mq.store.disk.files import Files

_ANY_MODE: Final = 0o7777
_NO_OTHERS: Final = 0o640


class NameTaken(Exception):
    """The file already has a token of this name."""


class NoSuchToken(Exception):
    """The file has no token of this name."""


class TokenFile:
    """Lines of tokens in a file. Blocking. Everything raises TokensUnusable, OSError."""

    def __init__(self, path: Path, files: Files | None = None) -> None:
        # A change replaces the target of a symbolic link.
        self._path = path.resolve()
        self._secrets = secrets_path(path).resolve()
        self._files = files or Files()

    def callers(self) -> Sequence[Caller]:
        """The callers, in the order of the lines."""
        return [each.caller for each in read_tokens(self._path)]

    def add(self, name: str, token: str, grants: Sequence[Grant]) -> None:
        """Adds a token's line. Creates a missing file for its owner alone. Raises NameTaken."""
        with self._alone():
            text = ""
            if self._files.status(str(self._path)) is not None:
                if any(each.name == name for each in self.callers()):
                    raise NameTaken
                text = read_text(self._path)
            ended = text if not text or text.endswith("\n") else text + "\n"
            self._replace(f"{ended}{line_of(name, token, grants)}\n")

    def set_secret(self, name: str, secret: str) -> None:
        """Gives a token a secret, in the place of one that it has. A new file of secrets has the
        owner of the tokens' file, and no other reader but its group, if it may read that. Raises
        NoSuchToken.
        """
        with self._alone():
            if all(each.name != name for each in self.callers()):
                raise NoSuchToken
            self._replace_secrets(name, f"{name} {secret}\n")

    def remove(self, name: str) -> None:
        """Removes a token's line, and its secret. Raises NoSuchToken."""
        with self._alone():
            if all(each.name != name for each in self.callers()):
                raise NoSuchToken
            if self._files.status(str(self._secrets)) is not None:
                self._replace_secrets(name, "")
            lines = read_text(self._path).split("\n")
            self._replace("\n".join(each for each in lines if name_of(each) != name))

    def _replace_secrets(self, name: str, line: str) -> None:
        path = self._secrets
        before = self._files.status(str(path))
        text = "" if before is None else read_secrets(path)
        others = [each for each in text.split("\n") if each and name_of(each) != name]
        text = "".join(f"{each}\n" for each in others) + line
        parse_secrets(path, text)
        made_like = before or self._files.status(str(self._path))
        self._write(path, text, made_like, _NO_OTHERS)

    def _replace(self, text: str) -> None:
        """Replaces the text, and keeps owner and mode. Raises TokensUnusable for a text that mq
        could not read.
        """
        check_text(self._path, text)
        self._write(self._path, text, self._files.status(str(self._path)), _ANY_MODE)

    def _write(self, file: Path, text: str, before: os.stat_result | None, modes: int) -> None:
        path, part = str(file), f"{file}.{secrets.token_hex(8)}.part"
        descriptor = self._files.create(part)
        try:
            self._files.write(descriptor, text.encode())
            if before is not None:
                # Its readers keep their access.
                self._keep_owner(part, before)
                self._files.set_mode(part, stat.S_IMODE(before.st_mode) & modes)
            self._files.sync(descriptor)
            self._files.rename(part, path)
        except BaseException:
            with contextlib.suppress(OSError):
                self._files.unlink(part)
            raise
        finally:
            self._files.close(descriptor)
        self._files.sync_folder(str(file.parent))

    def _keep_owner(self, part: str, before: os.stat_result) -> None:
        made = self._files.status(part)
        if made is None or (made.st_uid, made.st_gid) != (before.st_uid, before.st_gid):
            self._files.set_owner(part, before.st_uid, before.st_gid)

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        """Locks the folder against other changes by this class."""
        try:
            folder = self._files.open_folder(str(self._path.parent))
        except OSError as error:
            raise TokensUnusable(f"tokens {self._path}: {error.strerror}") from None
        try:
            self._files.wait_for_lock(folder)
            yield
        finally:
            self._files.close(folder)
