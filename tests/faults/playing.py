"""What the table of calls (`calls.txt`) is held against: a root whose calls are written down, and
the operations that are played on it.
"""

import importlib
import os
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Concatenate, ParamSpec

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.server import Serve, Server

from mq.model.limits import FOLDER_FILES_MAX
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.mounts import FileSystem
from mq.store.disk.steps import Steps, T
from mq.store.opening import open_root

TABLE = Path(__file__).with_name("calls.txt")
VERBS = frozenset(
    {"create", "write", "stamp", "flush", "syncfs", "link", "rename", "unlink", "mkdir", "rmdir",
     "chmod", "chown"}
)  # fmt: skip

P = ParamSpec("P")
Row = list[tuple[str, ...]]
"""An operation's calls in their order; those that stand together, in any order."""


def read_table() -> dict[str, Row]:
    """Each operation's row: "{heading of PROTOCOL.md}: {which}"."""
    rows: dict[str, Row] = {}
    parts: dict[str, Row] = {}
    section = name = ""
    for line in re.sub(r"([;|])\n +", r"\1 ", TABLE.read_text()).splitlines():
        text = line.partition("#")[0].strip()
        if line.startswith("== "):
            section = line.strip("= ")
        elif line.startswith(" ") and name:
            for step in text.split("; "):
                rows[name] += parts[step] if step in parts else _groups(step)
        elif section and " := " in text:
            part, _, steps = text.partition(" := ")
            parts[part] = [group for step in steps.split("; ") for group in _groups(step)]
        elif text and section:
            name = f"{section}: {text}"
            assert name not in rows, f"two rows are of {name}"
            rows[name] = []
    return rows


def sections() -> list[str]:
    """The headings of PROTOCOL.md under which the table has its rows."""
    return re.findall(r"^== (.*) ==$", TABLE.read_text(), re.MULTILINE)


def _groups(step: str) -> Row:
    """`create, write new/x`: two calls; `flush a/, b/`: one after the other; `flush a | b`: in any
    order.
    """
    words = step.split()
    verbs = [word.rstrip(",") for word in words if word.rstrip(",") in VERBS]
    assert verbs, f"{step!r} does nothing"
    return [
        tuple(sorted(f"{verb} {path}" for path in group.split(" | ")))
        for group in " ".join(words[len(verbs) :]).split(", ")
        for verb in verbs
    ]


def difference(calls: Sequence[str], row: Row) -> str:
    """Where the calls are others than the row's, as the table would say them; empty: nowhere."""
    at = 0
    for group in row:
        if tuple(sorted(calls[at : at + len(group)])) != group:
            break
        at += len(group)
    else:
        if at == len(calls):
            return ""
    shown = [
        f"    {call}{'   <- the first that is not in the table' * (number == at)}"
        for number, call in enumerate(calls)
    ]
    missing = [f"    and not {', '.join(group)}" for group in row[len(calls) :]]
    return "\n".join(["", *shown, *missing])


class Called(Files):
    """Writes down each call that has changed the disk, or flushed it."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[tuple[str, ...]] = []

    def say(self, *call: str) -> None:
        """What is written in parts is written once."""
        if call[0] != "write" or self.made[-1:] != [call]:
            self.made.append(call)

    def open_kept(self, path: str) -> int:
        was_there = os.path.lexists(path)
        descriptor = super().open_kept(path)
        if not was_there:
            self.say("create", path)
        return descriptor

    def rename(self, source: str, target: str) -> None:
        super().rename(source, target)
        slash = "/" * os.path.isdir(target)
        self.say("rename", source + slash, "->", target + slash)

    def link(self, path: str, target: str) -> None:
        super().link(path, target)
        self.say("link", path, "->", target)


def _said(name: str, verb: str, slash: str) -> Callable[..., Any]:
    def call(self: Called, of: str | int, *more: Any) -> Any:
        """The call; an open file is where it is by then."""
        result = getattr(Files, name)(self, of, *more)
        path = os.readlink(f"/proc/self/fd/{of}") if isinstance(of, int) else of
        self.say(verb, path + slash)
        return result

    return call


for _name, _verb, _slash in (
    ("create", "create", ""), ("write", "write", ""), ("stamp", "stamp", ""),
    ("unlink", "unlink", ""), ("mkdir", "mkdir", "/"), ("rmdir", "rmdir", "/"),
    ("set_mode", "chmod", ""), ("set_owner", "chown", ""), ("sync", "flush", ""),
    ("sync_folder", "flush", "/"), ("sync_file_system", "syncfs", "/"),
):  # fmt: skip
    setattr(Called, _name, _said(_name, _verb, _slash))


class CalledFiles(FaultyFiles, Called):
    """The same, with faults."""

    def __init__(self) -> None:
        super().__init__()


_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_IN_BUCKETS = r"queues/[^/]+|delay|remove"
_BUCKET = r"(p\d-|)(?!0{8})[0-9a-f]{8}"
_SHORTER = [
    (re.compile(pattern), shorter)
    for pattern, shorter in (
        (r"\.[0-9a-f]{16}(?:-\d+)?$", ""),  # Of a process's dotfile.
        (rf"{_UUID}(?=\.[dkifet](?:/|$)|\.l/|:)", "UUID"),
        (r"^failures/[0-9a-f]{2}(?=/)", "failures/HH"),
        (r"^(tags/[^/]+|queues/[^/]+/\.[a-z]+)/[0-9a-f]{2}(?=/)", r"\1/HH"),
        (r"^(expiring/[^/]+)/[0-9a-f]{8}(?=/)", r"\1/WINDOW"),
        (rf"^({_IN_BUCKETS})/{_BUCKET}(?=/)", r"\1/\2BUCKET"),
        (rf"^((?:{_IN_BUCKETS})/(?:p\d-)?BUCKET)/[0-9a-f]{{2}}(?=/)", r"\1/HH"),
        (rf":{_BUCKET}\.[0-9a-f]{{2}}(?=/)", r":\1BUCKET.HH"),
        (r"[0-9a-f]{32}", "JOB"),
        (r"/\.[0-9a-f]{10}$", "/.WINDOW"),
        (r"-\d{13}$", "-DUE"),
        (r"^(\.\./)+$", "ABOVE/"),
    )
]
_MESSAGE = re.compile(rf"{_UUID}[^/ ]*")


# Those that look at the root's file system.
_LOOKING = ("daemon.daemon", "store.bulk.staging", "store.disk.mounts")


@dataclass
class At:
    """A root, and who does something there. What is done after the last `watch` is held against
    the table.
    """

    top: Path
    serve: Serve
    files: CalledFiles = field(default_factory=CalledFiles)
    clock: FakeClock = field(default_factory=FakeClock)
    kind: str = "unknown"
    """What the root's file system says that it is."""
    _since: int = 0
    _flushers: list[FsyncFlusher] = field(default_factory=list)

    def watch(self) -> None:
        self._since = len(self.files.made)

    def calls(self) -> list[str]:
        """What was done since, as the table says it: messages are A, B and so on, in the order of
        their coming.
        """
        letters: dict[str, str] = {}

        def letter(found: re.Match[str]) -> str:
            return letters.setdefault(found.group()[:36], chr(ord("A") + len(letters)))

        said = []
        for verb, *words in self.files.made:
            shown = " ".join(self._short(word) for word in words)
            said.append(f"{verb} {_MESSAGE.sub(letter, shown)}")
        since = said[self._since :]
        return [
            each
            for each, before in zip(since, ["", *since], strict=False)
            if not _is_passed_over(each) and not each == before == "flush ABOVE/"
        ]

    def _short(self, word: str) -> str:
        path = os.path.relpath(word, self.top) + "/" * word.endswith("/") if "/" in word else word
        for pattern, shorter in _SHORTER:
            path = pattern.sub(shorter, path)
        return path

    def opened(self, folder_max: int = FOLDER_FILES_MAX) -> Root:
        """The root for a process beside it."""
        return open_root(str(self.top), self.files, self.clock, folder_max=folder_max)

    def run(self, operation: Steps[T]) -> T:
        """By a process that has flushed nothing yet."""
        return run_alone(operation, self.flusher())

    def flusher(self) -> FsyncFlusher:
        """Of a process that has flushed nothing yet."""
        self._flushers.append(FsyncFlusher(self.files, 1))
        return self._flushers[-1]

    def place(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Has the root's file system be of this kind, wherever the tests' folder is."""
        for module in _LOOKING:
            monkeypatch.setattr(f"mq.{module}.file_system_of", lambda _: FileSystem(self.kind, "/"))

    def close(self) -> None:
        for flusher in self._flushers:
            flusher.close()

    async def served(self, **settings: Any) -> Server:
        """An mq that flushes file by file."""
        return await self.serve(files=self.files, clock=self.clock, commit="fsync", **settings)

    def crowd(self, *folders: str) -> None:
        """From now on all that comes there goes to buckets, where folders are to hold one file."""
        for folder in folders or ("queues/q", "delay", "remove"):
            (self.top / folder / ".full").touch()


def _is_passed_over(call: str) -> bool:
    """A file to lock holds nothing, and what members and shovels tell is never flushed."""
    verb, path = call.split()[:2]
    is_told = path.startswith(("shovels/", "members/")) and not path.endswith("s/")
    return is_told or (verb == "create" and path.endswith(".lock"))


@dataclass(frozen=True)
class Play:
    """One row's operation, played."""

    row: str
    act: Callable[[At], Awaitable[None]]
    variant: str = ""
    marks: Sequence[pytest.MarkDecorator] = ()

    @property
    def id(self) -> str:
        return "-".join(filter(None, (self.row.replace(" ", "-"), self.variant)))


_plays: list[Play] = []


def plays(
    row: str, variant: str = "", marks: Sequence[pytest.MarkDecorator] = (), **said: Any
) -> Callable[[Callable[Concatenate[At, P], Awaitable[None]]], Any]:
    """Plays this row; with what more is said, which the function is given."""

    def register(act: Callable[..., Awaitable[None]]) -> Any:
        _plays.append(Play(row, partial(act, **said), variant, marks))
        return act

    return register


def all_plays() -> list[Any]:
    """Those of all modules of `plays/`, as a test's parameters."""
    for path in sorted(Path(__file__).with_name("plays").glob("*.py")):
        importlib.import_module(f"faults.plays.{path.stem}")
    return [pytest.param(play, id=play.id, marks=play.marks) for play in _plays]
