"""The scripts that `test_states.py` plays: each says beside itself where it is played, and on which
models of a file system its cuts are legal.

    @script(FLAT, BUCKETS)
    async def delete_ready(on: Stage) -> None: ...
"""

import importlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from crash.legal_states import Model
from crash.stage import Stage

from mq.model.limits import FOLDER_FILES_MAX

Play = Callable[[Stage], Awaitable[None]]

FLAT = FOLDER_FILES_MAX
BUCKETS = 1
"""Folders of one file: a folder's first message lies flat, the next in its bucket, and those after
it below that.
"""


class Legal(Enum):
    """On which models a script's cuts are legal, and why on no other."""

    EVERYWHERE = (tuple(Model), "each operation flushes what it has moved itself")
    LEFT_BETWEEN = (
        (Model.JOURNAL, Model.ATOMIC, Model.HALVES),
        "operations run side by side, or one begins where another died, so that one may flush the"
        " folder that another's rename has just left; mq relies on file systems to lose no file"
        " then, as all known ones do",
    )
    TWO_NAMES = ((Model.HALVES, Model.APART), "where renames are whole no file has two names")
    WHOLE_RENAMES = (
        (Model.JOURNAL, Model.ATOMIC),
        "a fold is moved whole only where a rename leaves one name",
    )

    @property
    def models(self) -> tuple[Model, ...]:
        """Stricter rules first: a tree that is legal twice is looked at once."""
        models: tuple[Model, ...] = self.value[0]
        return models


@dataclass(frozen=True)
class Script:
    """One script, in folders of one limit."""

    play: Play
    folder_max: int
    models: tuple[Model, ...]

    @property
    def in_order(self) -> bool:
        """Whether it is played by daemons that count on the order of changes."""
        return self.models == (Model.JOURNAL,)

    @property
    def name(self) -> str:
        return self._named("flat" if self.folder_max == FLAT else "buckets")

    @property
    def flat(self) -> str:
        """The name of the same script in flat folders."""
        return self._named("flat")

    def _named(self, place: str) -> str:
        return f"{self.play.__name__}-{place}{'-in-order' if self.in_order else ''}"


_scripts: dict[str, Script] = {}


def script(*places: int, legal: Legal = Legal.EVERYWHERE) -> Callable[[Play], Play]:
    """Registers what follows: in flat folders, or in these places."""

    def register(play: Play) -> Play:
        ordered = tuple(model for model in legal.models if model is Model.JOURNAL)
        others = tuple(model for model in legal.models if model is not Model.JOURNAL)
        for place in places or (FLAT,):
            for models in filter(None, (ordered, others)):
                made = Script(play, place, models)
                assert made.name not in _scripts, f"two scripts have the name {made.name}"
                _scripts[made.name] = made
        return play

    return register


def all_scripts() -> dict[str, Script]:
    """Those of all modules of this folder, by name."""
    for path in sorted(Path(__file__).parent.glob("*scripts.py")):
        importlib.import_module(f"crash.{path.stem}")
    return dict(_scripts)
