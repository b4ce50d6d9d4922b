"""`python -m harness.stopping MODULE FLAGS...`: a daemon that stops itself, or dies, between calls
on files, where a stop from outside seldom hits: between a lock and its rename, a rename and its
stamp, in the middle of a listing.

It goes from place to place in an order of its own, by STOPPING_SEED: at the next passage of each it
stops, or, of STOPPING_KILLS of them, dies. About STOPPING_EVERY calls on files go well between
two, the first calls always, and all when the file named by STOPPING_WHILE is gone. It says on
stderr where it stopped, and when it went on.
"""

import functools
import inspect
import os
import random
import re
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from mq.store.disk.files import Files

# An operation, and before or after which of its calls; those that are there twice come twice as
# often. A place that nobody passes is left for the next one after a while.
SERVER_PLACES = (
    *("publish before write",) * 2,
    "deliver before rename",
    "deliver after rename",
    "fetch after open_claimed",
    "fetch after lock",
    *("fetch before rename",) * 2,
    *("fetch after rename",) * 4,
    "fetch before stamp",
    *("fetch after stamp",) * 2,
    "fetch before read",
    *("release before open_claimed",) * 5,
    "release after lock",
    "release after stamp",
    "release after rename",
    "remove before rename",
    "remove after rename",
    "remove after lock",
    *("delete_queue after rename",) * 2,
    "retire_delayed before rename",
    "create_queue after mkdir",
    "flush after sync",
    "flush after sync_folder",
)
MOVER_PLACES = (
    *("redeliver after open_claimed",) * 2,
    *("redeliver after lock",) * 3,
    *("redeliver before rename",) * 4,
    "redeliver after rename",
    "flush after sync_folder",
    "list after entries",
)
REAPER_PLACES = ("reap before unlink", "reap after unlink", "list after entries")
PLACES = {"mq": SERVER_PLACES, "mq_mover": MOVER_PLACES, "mq_reaper": REAPER_PLACES}

CALLS = (
    "create", "write", "stamp", "mkdir", "rename", "unlink", "sync", "sync_folder",
    "open_claimed", "lock", "read",
)  # fmt: skip
CALLS_OF_A_START = 100
PATIENCE_CALLS = 400

_OPERATIONS = {place.partition(" ")[0] for places in PLACES.values() for place in places}
_LINE = re.compile(r"stopped: (\d+) to (\d+) us, (.+), at (.*)")


@dataclass(frozen=True, slots=True)
class Stall:
    """A stop of a daemon in the middle of an operation on this path, in microseconds since the
    epoch.
    """

    place: str
    path: str
    began_us: int
    ended_us: int


def stalls(lines: Iterable[str]) -> list[Stall]:
    """The stops that a daemon tells of in its log."""
    found = (_LINE.search(line) for line in lines)
    return [Stall(match[3], match[4], int(match[1]), int(match[2])) for match in found if match]


def _signal(number: signal.Signals) -> None:
    """Sends this process a signal that takes effect here: one to the process as a whole may go to
    another thread, and this one goes some calls on meanwhile.
    """
    signal.pthread_kill(threading.get_ident(), number)


class Itinerary:
    """Where to stop next; counts calls. Threads share it."""

    def __init__(
        self,
        places: tuple[str, ...],
        chance: random.Random,
        every: float,
        kills: float,
        path: str,
        send: Callable[[signal.Signals], None] = _signal,
    ) -> None:
        self._places = list(places)
        chance.shuffle(self._places)
        self._chance = chance
        self._every = every
        self._kills = kills
        self._while = path
        self._signal = send
        self._calls = 0
        self._next_call = CALLS_OF_A_START
        self._guard = threading.Lock()

    def pass_by(self, call: str, path: str) -> None:
        """Stops this process, or kills it, when this is the next place."""
        if self._is_here(call) and os.path.exists(self._while):
            if self._chance.random() < self._kills:
                self._signal(signal.SIGKILL)
            began_us = _now_us()
            self._signal(signal.SIGSTOP)
            line = f"stopped: {began_us} to {_now_us()} us, {call}, at {path}\n"
            os.write(sys.stderr.fileno(), line.encode())

    def _is_here(self, place: str) -> bool:
        with self._guard:
            self._calls += 1
            early = self._next_call - self._calls
            if early > 0:
                return False
            if self._places[0] != place and early > -PATIENCE_CALLS:
                return False
            here = self._places[0] == place
            self._places.append(self._places.pop(0))
            # Often at once: much happens just after a stop that seldom does, releases for instance.
            wait = self._chance.choice([0, 4 * self._every * self._chance.random()]) if here else 0
            self._next_call = self._calls + round(wait)
            return here


def _now_us() -> int:
    return time.time_ns() // 1000


def _operation() -> str:
    """The innermost of the operations that the caller is part of."""
    frame = inspect.currentframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == "mq.store.disk.flush":
            return "flush"
        if frame.f_code.co_name in _OPERATIONS:
            return frame.f_code.co_name
        frame = frame.f_back
    return ""


def _path(arguments: tuple[Any, ...]) -> str:
    """What a call is about: a path, or what its descriptor is open on."""
    if arguments and isinstance(arguments[0], int):
        try:
            return os.readlink(f"/proc/self/fd/{arguments[0]}")
        except OSError:
            return ""
    return str(arguments[0]) if arguments else ""


def _interrupted(name: str, call: Callable[..., Any], itinerary: Itinerary) -> Callable[..., Any]:
    """The call, with a place before it and one after."""

    @functools.wraps(call)
    def wrapper(self: Files, *arguments: Any) -> Any:
        operation = _operation()
        itinerary.pass_by(f"{operation} before {name}", _path(arguments))
        result = call(self, *arguments)
        itinerary.pass_by(f"{operation} after {name}", _path(arguments))
        return result

    return wrapper


def arm(itinerary: Itinerary) -> None:
    """Every Files of this process stops where the itinerary says from now on."""
    for name in CALLS:
        setattr(Files, name, _interrupted(name, getattr(Files, name), itinerary))
    entries = Files.entries

    def listed(self: Files, folder: str) -> "Iterator[os.DirEntry[str]]":
        yield from entries(self, folder)
        itinerary.pass_by("list after entries", folder)

    Files.entries = listed  # type: ignore[method-assign]


if __name__ == "__main__":
    module = sys.argv[1]
    arm(
        Itinerary(
            PLACES[module],
            random.Random(int(os.environ["STOPPING_SEED"])),
            float(os.environ["STOPPING_EVERY"]),
            float(os.environ["STOPPING_KILLS"]),
            os.environ["STOPPING_WHILE"],
        )
    )
    sys.argv = sys.argv[1:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
