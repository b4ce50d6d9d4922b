"""Files on whose way another comes: what he does, he does just before one call."""

from collections.abc import Callable
from typing import Any

from harness.faults import FlushedInCalls


class Met(FlushedInCalls):
    """What others do once, just before a call on a path with this in it. Flushes nothing."""

    def __init__(self) -> None:
        super().__init__()
        self._others: tuple[str, str, Callable[[], object]] | None = None

    def before(self, call: str, where: str, act: Callable[[], object]) -> None:
        self._others = (call, where, act)

    def _pass(self, call: str, path: str, also: str = "") -> Any:
        if self._others is not None and self._others[0] == call:
            _, where, act = self._others
            if where in path or where in also:
                self._others = None
                act()
        return super()._pass(call, path, also)
