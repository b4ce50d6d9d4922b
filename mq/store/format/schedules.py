"""The names of schedules, and of the links that record their firings.

FORMAT.md, "Schedules".
"""

import itertools
import os
import re
from typing import Final

from mq.model.errors import BadName
from mq.model.names import Key, QueueName, ScheduleName
from mq.store.format.layout import Keys, Layout, LinkPlace, entry_prefix, new_name, split_entry

FIRING_DUE_DIGITS_MAX: Final = 15

_LOCK: Final = ".lock"
# Not a dot, which would be escaped in a written key.
_BEFORE_DUE: Final = "-"
_WRITTEN: Final = itertools.count(1)
_UNFINISHED: Final = re.compile(r"\.[^.].*\.[0-9a-f]{16}-[0-9]+", re.DOTALL)
_DUE: Final = re.compile(rf"[1-9][0-9]{{0,{FIRING_DUE_DIGITS_MAX - 1}}}")


def schedules_lock(layout: Layout) -> str:
    """The lock file for making, changing, re-arming and removing schedules."""
    return f"{layout.schedules}/{_LOCK}"


def schedule_path(layout: Layout, queue: QueueName, name: ScheduleName) -> str:
    """The file of a queue's schedule; its mtime is its next firing."""
    return f"{layout.schedules}/{entry_prefix(queue)}{name.text}"


def new_schedule_path(layout: Layout, queue: QueueName, name: ScheduleName) -> str:
    """Where a schedule is written, another name each time. A dotfile: it means nothing until it is
    renamed.
    """
    written = new_name(f"{entry_prefix(queue)}{name.text}")
    return f"{layout.schedules}/{written}{_BEFORE_DUE}{next(_WRITTEN)}"


def parse_schedule(entry: str) -> tuple[QueueName, ScheduleName]:
    """Parses a name of schedules/. Raises BadName for a foreign file."""
    queue, name = split_entry(entry)
    return QueueName.parse(queue), ScheduleName.parse(name)


def is_unfinished_schedule(entry: str) -> bool:
    """Whether a file of this name is unfinished."""
    return _UNFINISHED.fullmatch(entry) is not None


def firing_key(name: ScheduleName, due_ms: int) -> Key:
    """The key of a firing: the firing has happened once its link exists. Raises BadName for a time
    that no schedule has.
    """
    if _DUE.fullmatch(str(due_ms)) is None:
        raise BadName("due", "milliseconds since the epoch, before the year 33658")
    return Key.parse(f"{name.text}{_BEFORE_DUE}{due_ms}")


def firing_place(layout: Layout, queue: QueueName, name: ScheduleName, due_ms: int) -> LinkPlace:
    """The place of a firing's link."""
    return layout.link(Keys.FIRING, queue, firing_key(name, due_ms))


def parse_firing(place: LinkPlace) -> tuple[ScheduleName, int]:
    """The schedule and the due time (milliseconds since the epoch) of a firing's link. Raises
    BadName.
    """
    name, _, due = os.path.basename(place.path).rpartition(_BEFORE_DUE)
    if _DUE.fullmatch(due) is None:
        raise BadName("firing", "{name}-{due}")
    return ScheduleName.parse(name), int(due)
