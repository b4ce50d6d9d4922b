"""Names of schedules, and of the links that say which of their firings have been.

FORMAT.md, "schedules" in its folders, has them.
"""

import itertools
import os
import re
from typing import Final

from mq.model.errors import BadName
from mq.model.limits import FIRING_DUE_DIGITS_MAX
from mq.model.names import Key, QueueName, ScheduleName
from mq.store.format.layout import Keys, Layout, LinkPlace, entry_prefix, new_name, split_entry

_LOCK: Final = ".lock"
# Not a dot, which would be escaped where a key is written.
_BEFORE_DUE: Final = "-"
_WRITTEN: Final = itertools.count(1)
_UNFINISHED: Final = re.compile(r"\.[^.].*\.[0-9a-f]{16}-[0-9]+", re.DOTALL)
_DUE: Final = re.compile(rf"[1-9][0-9]{{0,{FIRING_DUE_DIGITS_MAX - 1}}}")


def schedules_lock(layout: Layout) -> str:
    """What whoever makes, changes, re-arms or takes away a schedule has locked."""
    return f"{layout.schedules}/{_LOCK}"


def schedule_path(layout: Layout, queue: QueueName, name: ScheduleName) -> str:
    """The file of a queue's schedule; its mtime is its next firing."""
    return f"{layout.schedules}/{entry_prefix(queue)}{name.text}"


def new_schedule_path(layout: Layout, queue: QueueName, name: ScheduleName) -> str:
    """Where one is written, each time another. A dotfile: it means nothing until it is renamed."""
    written = new_name(f"{entry_prefix(queue)}{name.text}")
    return f"{layout.schedules}/{written}{_BEFORE_DUE}{next(_WRITTEN)}"


def parse_schedule(entry: str) -> tuple[QueueName, ScheduleName]:
    """Reads a name of schedules/. Raises BadName: the file is foreign."""
    queue, name = split_entry(entry)
    return QueueName.parse(queue), ScheduleName.parse(name)


def is_unfinished_schedule(entry: str) -> bool:
    """Whether a file of this name was being written there."""
    return _UNFINISHED.fullmatch(entry) is not None


def firing_key(name: ScheduleName, due_ms: int) -> Key:
    """What stands for a firing: it has been once its link is there. Raises BadName where nothing
    stands for it: a time that no schedule of ours has.
    """
    if _DUE.fullmatch(str(due_ms)) is None:
        raise BadName("due", "milliseconds since the epoch, before the year 33658")
    return Key.parse(f"{name.text}{_BEFORE_DUE}{due_ms}")


def firing_place(layout: Layout, queue: QueueName, name: ScheduleName, due_ms: int) -> LinkPlace:
    """The place of a firing's link."""
    return layout.link(Keys.FIRING, queue, firing_key(name, due_ms))


def parse_firing(place: LinkPlace) -> tuple[ScheduleName, int]:
    """The schedule and the due time, milliseconds since the epoch, of a firing's link. Raises
    BadName: it is none.
    """
    name, _, due = os.path.basename(place.path).rpartition(_BEFORE_DUE)
    if _DUE.fullmatch(due) is None:
        raise BadName("firing", "{name}-{due}")
    return ScheduleName.parse(name), int(due)
