"""`python -m harness.stopping MODULE FLAGS...`: a daemon that stops itself, or dies, between calls
on files, where a stop from outside seldom hits: between a lock and its rename, a rename and its
stamp, in the middle of a listing.

STOPPING_SEED chooses the calls, STOPPING_EVERY says how many go well between two, about, and
STOPPING_KILLS which share of the stops are kills instead. The first calls, the start, go well.
"""

import functools
import os
import random
import runpy
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from mq.store.files import Files

# The calls, and how much more likely than the others.
CALLS = {
    "create": 1, "write": 1, "stamp": 8, "rename": 8, "unlink": 1, "rmdir": 1, "sync": 1,
    "sync_folder": 1, "open_claimed": 1, "lock": 8, "unlock": 4, "status": 1,
    "descriptor_status": 8,
}  # fmt: skip
CALLS_OF_A_START = 100


class Chance:
    """When to stop; counts calls."""

    def __init__(self, seed: int, every: float, kills: float) -> None:
        self._random = random.Random(seed)
        self._every = every
        self._kills = kills
        self._calls = 0

    def take(self, weight: float = 1.0) -> None:
        """Stops this process, or kills it, or does nothing."""
        self._calls += 1
        if self._calls > CALLS_OF_A_START and self._random.random() < weight / self._every:
            is_kill = self._random.random() < self._kills
            os.kill(os.getpid(), signal.SIGKILL if is_kill else signal.SIGSTOP)


def interrupted(call: Callable[..., Any], chance: Chance, weight: float) -> Callable[..., Any]:
    """The call, with a chance before it and one after."""

    @functools.wraps(call)
    def wrapper(*arguments: Any) -> Any:
        chance.take(weight)
        result = call(*arguments)
        chance.take(weight)
        return result

    return wrapper


def arm(chance: Chance) -> None:
    """Every Files of this process stops at times from now on."""
    for name, weight in CALLS.items():
        setattr(Files, name, interrupted(getattr(Files, name), chance, weight))
    entries = Files.entries

    def listed(self: Files, folder: str) -> "Iterator[os.DirEntry[str]]":
        yield from entries(self, folder)
        chance.take()

    Files.entries = listed  # type: ignore[method-assign]


if __name__ == "__main__":
    arm(
        Chance(
            int(os.environ["STOPPING_SEED"]),
            float(os.environ["STOPPING_EVERY"]),
            float(os.environ["STOPPING_KILLS"]),
        )
    )
    module = sys.argv[1]
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
