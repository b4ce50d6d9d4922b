"""A process that has imported what tests need, and forks for each run of pytest.

    python -m mutants.warm TEST...       in a checkout; speaks JSON lines, each an order and a reply

Most of a mutant's run would be the start of Python and the imports. A fork has those, and changes
the one function that is another in the checkout that it is told. What tests start as a process of
its own finds that checkout. Where a function is not all that changes, the fork forgets what is
the project's, and imports it from there.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Self

import pytest

from mutants.swapped import swap


@dataclass(frozen=True, slots=True)
class Run:
    """pytest's arguments, the checkout with what is changed in it, and how long it may take."""

    checkout: str
    arguments: list[str]
    patience_s: float
    module: str = ""
    function: str = ""
    """The function of this module is another; without a module nothing is."""


@dataclass(frozen=True, slots=True)
class Ran:
    """What pytest ended with, None when it did not end, and what it said."""

    code: int | None
    said: str


class Warm:
    """The process, for one thread; `tests` are those that are to come."""

    def __init__(self, pattern: Path, tests: Sequence[str], environment: dict[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "mutants.warm", *tests],
            cwd=pattern,
            env=environment | {"PYTHONPATH": f"{pattern}:{pattern / 'tests'}"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._tests: list[str] | None = None

    @property
    def tests(self) -> list[str]:
        """All of them, by their ids."""
        if self._tests is None:
            self._tests = json.loads(self._reply())
        return self._tests

    def run(self, order: Run) -> Ran:
        """Runs pytest in a fork."""
        assert self.tests, "there are no tests"
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        return Ran(**json.loads(self._reply()))

    def _reply(self) -> str:
        assert self._process.stdout is not None
        reply = self._process.stdout.readline()
        assert reply, f"the warm process has ended with {self._process.wait()}"
        return reply

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()


def main(tests: Sequence[str]) -> int:
    """Serves orders until there are no more; in a fork, pytest's exit code."""
    # Nothing that a test starts or prints is to meet these.
    orders, replies = _moved(0, "r"), _moved(1, "w")
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    os.dup2(2, 1)
    path = [place for place in sys.path if not _is_project(place)]
    replies.write(json.dumps(_import_all(tests)) + "\n")
    replies.flush()
    for line in orders:
        order = Run(**json.loads(line))
        with tempfile.TemporaryFile("w+") as said:
            if (child := os.fork()) == 0:
                orders.close()
                replies.close()
                code = _run(order, path, said)
                sys.stdout.flush()
                sys.stderr.flush()
                # Without taking apart, piece by piece, what a fork shares.
                os._exit(code)
            code = _awaited(child, order.patience_s)
            said.seek(0)
            replies.write(json.dumps(asdict(Ran(code, said.read()))) + "\n")
            replies.flush()
    return 0


def _moved(descriptor: int, mode: str) -> IO[Any]:
    """The same, under another number, that no program gets which is started."""
    return os.fdopen(os.dup(descriptor), mode)


class _Collected:
    """A plugin of pytest that keeps what is collected."""

    def __init__(self) -> None:
        self.tests: list[str] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.tests = [item.nodeid for item in items]


def _import_all(tests: Sequence[str]) -> list[str]:
    """Imports what collecting the tests imports; the ids of what was collected."""
    collected = _Collected()
    words = ["-q", "-p", "no:cacheprovider", "--collect-only", *tests]
    with open(os.devnull, "w") as silence, contextlib.redirect_stdout(silence):
        code = pytest.main(words, plugins=[collected])
    assert code == 0, f"the tests cannot be collected: {code}"
    # A fork neither looks through what is there already nor copies it.
    gc.collect()
    gc.freeze()
    return collected.tests


def _of_project() -> Iterator[str]:
    """The names of modules that lie in this folder; this one is no other's."""
    for name, module in list(sys.modules.items()):
        places = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
        if name != "__main__" and any(place and _is_project(place) for place in places):
            yield name


def _is_project(place: str) -> bool:
    """Whether it is of the checkout, and not of the environment that may lie in it."""
    path = Path(place).absolute()
    return path.is_relative_to(Path.cwd()) and not path.is_relative_to(sys.prefix)


def _run(order: Run, path: list[str], said: IO[str]) -> int:
    """pytest, in a fork that is as a process of its own would be."""
    os.setsid()
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    os.environ["PYTHONPATH"] = order.checkout
    if order.module and not swap(Path(order.checkout), order.module, order.function):
        _import_anew(order.checkout, path)
    random.seed()
    return int(pytest.main(order.arguments))


def _import_anew(checkout: str, path: list[str]) -> None:
    """Has all of the project be the checkout's."""
    for name in list(_of_project()):
        del sys.modules[name]
    os.chdir(checkout)
    sys.path[:] = [checkout, *path]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()


def _awaited(child: int, patience_s: float) -> int | None:
    """The exit code; None: it had to be killed."""
    descriptor = os.pidfd_open(child)
    try:
        ended, _, _ = select.select([descriptor], [], [], patience_s)
        if not ended:
            os.killpg(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(status) if ended else None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
