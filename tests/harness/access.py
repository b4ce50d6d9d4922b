"""Tokens for tests: callers by name, what each may do, and the file that says so."""

import os
import urllib.error
import urllib.request
from pathlib import Path

from harness.processes import PATIENCE_S
from mq.access.callers import parse_grants
from mq.access.tokens import line_of, new_token

# By name: what each may do.
CALLERS = {
    "publisher": ("orders*:publish",),
    "consumer": ("orders*:consume",),
    "both": ("orders*:publish,consume",),
    "keeper": ("orders*:admin",),
    "stranger": ("events:admin",),
    "everybody": ("*:publish,consume",),
    "root": ("*:admin",),
}


class Tokens:
    """A file of tokens, and the tokens."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.of: dict[str, str] = {}
        self._lines: dict[str, str] = {}

    def add(self, name: str, *grants: str) -> str:
        """A new token of that name, in the place of one that it has; written to the file."""
        token = new_token()
        self.of[name] = token
        self._lines[name] = line_of(name, token, parse_grants(grants))
        self._write()
        return token

    def grant(self, name: str, *grants: str) -> None:
        """The same token has these grants."""
        self._lines[name] = line_of(name, self.of[name], parse_grants(grants))
        self._write()

    def remove(self, name: str) -> None:
        del self._lines[name]
        self._write()

    def damage(self) -> None:
        """The file says nothing that can be meant, in its second line."""
        self._replace("# nobody\nnobody\n")

    def header(self, name: str) -> dict[str, str]:
        """What a request of that caller has."""
        return {"Authorization": f"Bearer {self.of[name]}"}

    def _write(self) -> None:
        self._replace("".join(f"{line}\n" for line in self._lines.values()))

    def _replace(self, text: str) -> None:
        part = self.path.with_suffix(".part")
        part.write_text(text, encoding="utf-8")
        part.chmod(0o600)
        os.replace(part, self.path)


def tokens_of_all(path: Path) -> Tokens:
    """A token for each of CALLERS."""
    made = Tokens(path)
    for name, grants in CALLERS.items():
        made.add(name, *grants)
    return made


def status(url: str, token: str, path: str = "/orders") -> int:
    """What a GET is answered, on a connection of its own."""
    asked = urllib.request.Request(
        url + path, headers={"Authorization": f"Bearer {token}", "Connection": "close"}
    )
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE_S) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
