"""Which queues are asked about in a tick, where there are more than a tick has room for. Pure."""

import heapq
import math
from collections.abc import Iterable, Mapping

from mq.tools.mqctl.top.limits import REST_SHARE


def next_asked(
    asked_s: Mapping[str, float | None], shown: Iterable[str], room: int
) -> tuple[str, ...]:
    """At most `room` names: those on the screen, and of all others those that wait longest; a share
    of the room is left for these, so that each has its turn. `asked_s`: when each was asked about
    last, None: never.
    """
    visible = [name for name in dict.fromkeys(shown) if name in asked_s]
    others = asked_s.keys() - set(visible)
    for_others = min(len(others), max(1, math.ceil(room * REST_SHARE)), room)
    if len(visible) > room - for_others:
        chosen = _longest(asked_s, visible, room - for_others)
    else:
        chosen = visible
    return (*chosen, *_longest(asked_s, others, room - len(chosen)))


def _longest(asked_s: Mapping[str, float | None], names: Iterable[str], count: int) -> list[str]:
    """Those that wait longest, the never asked first, and among equals by name."""

    def waited(name: str) -> tuple[float, str]:
        when = asked_s[name]
        return (-math.inf if when is None else when, name)

    return heapq.nsmallest(count, names, key=waited)
