"""The scripts that `test_states.py` plays: each says beside itself where it is played.

@script(FLAT, BUCKETS)
async def delete_ready(on: Stage) -> None: ...
"""

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from crash.stage import Stage

from mq.model.limits import FOLDER_FILES_MAX

Play = Callable[[Stage], Awaitable[None]]

FLAT = FOLDER_FILES_MAX
BUCKETS = 1
"""Folders of one file: a folder's first message lies flat, the next in its bucket, and those after
it below that.
"""


@dataclass(frozen=True)
class Script:
    """One script, in folders of one limit."""

    play: Play
    folder_max: int

    @property
    def name(self) -> str:
        place = "flat" if self.folder_max == FLAT else "buckets"
        return f"{self.play.__name__}-{place}"

    @property
    def flat(self) -> str:
        """The name of the same script in flat folders."""
        return f"{self.play.__name__}-flat"


_scripts: dict[str, Script] = {}


def script(*places: int) -> Callable[[Play], Play]:
    """Registers what follows: in flat folders, or in these places."""

    def register(play: Play) -> Play:
        for place in places or (FLAT,):
            made = Script(play, place)
            assert made.name not in _scripts, f"two scripts have the name {made.name}"
            _scripts[made.name] = made
        return play

    return register


def all_scripts() -> dict[str, Script]:
    """Those of all modules of this folder, by name."""
    for path in sorted(Path(__file__).parent.glob("*scripts.py")):
        importlib.import_module(f"crash.{path.stem}")
    return dict(_scripts)
