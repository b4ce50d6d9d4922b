"""A file system that loses what was not flushed (`faulty_disk_server.py`): its orders, its log."""

import contextlib
import json
import os
import pickle
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crash.calls import Call
from crash.images import Mark
from crash.legal_states import Model
from harness.fuse import served


@dataclass
class FaultyDisk:
    """A mounted one."""

    top: Path
    """Where its files are."""
    _control: int
    ahead_s: float = 0
    """How much later it is for marks than for the machine."""

    def mark(self, what: str, **facts: Any) -> None:
        """Puts a mark into the log."""
        at_ms = time.time_ns() // 1_000_000 + round(self.ahead_s * 1000)
        self._order({"mark": {"what": what, "at_ms": at_ms, **facts}})

    def cut_after(self, calls: int) -> None:
        """Cuts the power when so many more changes were made."""
        self._order({"cut_after": calls})

    def power_on(self, model: Model, seed: int) -> None:
        """Goes on with one of the trees that the cut may have left."""
        self._order({"power_on": model.name, "seed": seed})

    def is_cut(self) -> bool:
        """Whether nothing can be reached any more."""
        return not os.path.exists(self.top)

    def pass_time(self, seconds: float) -> None:
        """From here on it is so much later; nothing that happened before is."""
        self.mark("later")
        self.ahead_s += seconds
        self.mark("later")

    def save(self, log: Path) -> list[Call | Mark]:
        """All that was done; after that it is empty, and its log too."""
        self._order({"save": str(log)})
        self.ahead_s = 0
        with log.open("rb") as written:
            calls: list[Call | Mark] = pickle.load(written)
        return calls

    def _order(self, order: dict[str, Any]) -> None:
        text = json.dumps(order).encode()
        assert os.pwrite(self._control, text, 0) == len(text)


@contextlib.contextmanager
def faulty_disk(work: Path) -> Iterator[FaultyDisk]:
    """Mounts an empty one."""
    with contextlib.ExitStack() as cleanup:
        where = cleanup.enter_context(served("crash.faulty_disk_server", work / "faulty"))
        control = os.open(where / "control", os.O_WRONLY)
        cleanup.callback(os.close, control)
        yield FaultyDisk(where / "disk", control)
