"""A process that has imported what tests need beside the project, and forks for each run of pytest.

    python -m mutants.warm TEST...       in a checkout; speaks JSON lines, each an order and a reply

Most of a mutant's run would be the start of Python and the imports of other people's packages. A
fork has those; of the project it has nothing, and imports all from the checkout that it is told.
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


@dataclass(frozen=True, slots=True)
class Run:
    """pytest's arguments, where it runs, and how long it may take."""

    checkout: str
    arguments: list[str]
    patience_s: float


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

    def run(self, order: Run) -> Ran:
        """Runs pytest in a fork."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()
        reply = self._process.stdout.readline()
        assert reply, f"the warm process has ended with {self._process.wait()}"
        return Ran(**json.loads(reply))

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
    _import_all(tests)
    for line in orders:
        order = Run(**json.loads(line))
        with tempfile.TemporaryFile("w+") as said:
            if (child := os.fork()) == 0:
                orders.close()
                replies.close()
                return _run(order, path, said)
            code = _awaited(child, order.patience_s)
            said.seek(0)
            replies.write(json.dumps(asdict(Ran(code, said.read()))) + "\n")
            replies.flush()
    return 0


def _moved(descriptor: int, mode: str) -> IO[Any]:
    """The same, under another number, that no program gets which is started."""
    return os.fdopen(os.dup(descriptor), mode)


def _import_all(tests: Sequence[str]) -> None:
    """Imports what collecting the tests imports, and forgets what of that is the project's."""
    with open(os.devnull, "w") as silence, contextlib.redirect_stdout(silence):
        code = pytest.main(["-q", "-p", "no:cacheprovider", "--collect-only", *tests])
    assert code == 0, f"the tests cannot be collected: {code}"
    for name in list(_of_project()):
        del sys.modules[name]
    # A fork neither looks through what is there already nor copies it.
    gc.collect()
    gc.freeze()


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
    os.chdir(order.checkout)
    os.environ["PYTHONPATH"] = order.checkout
    sys.path[:] = [order.checkout, *path]
    sys.path_importer_cache.clear()
    importlib.invalidate_caches()
    random.seed()
    return int(pytest.main(order.arguments))


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
