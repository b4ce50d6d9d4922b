"""Which of several processes has said nothing for too long: pure.

Told by looks, and not by a clock: whoever looks may itself have been stopped meanwhile.
"""

from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

LOOKS: Final = 4
"""How often in a watchdog's time there is a look."""
_SILENT_LOOKS_MAX: Final = LOOKS + 1


class Speaker(Protocol):
    """A process that speaks again and again from when it is up."""

    name: str
    words: int
    is_up: bool


S = TypeVar("S", bound=Speaker)


class Silences:
    """What was heard at each look."""

    def __init__(self) -> None:
        self._heard: dict[str, tuple[int, int]] = {}

    def too_long(self, speakers: Iterable[S]) -> list[S]:
        """One more look: those that are up and have said nothing since long ago. One that is
        counted here begins anew.
        """
        return [each for each in speakers if self._is_too_long(each)]

    def _is_too_long(self, speaker: Speaker) -> bool:
        words, looks = self._heard.get(speaker.name, (-1, 0))
        looks = looks + 1 if speaker.is_up and speaker.words == words else 0
        is_too_long = looks >= _SILENT_LOOKS_MAX
        self._heard[speaker.name] = (speaker.words, 0 if is_too_long else looks)
        return is_too_long
