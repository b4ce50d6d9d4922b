"""The names in history/.

FORMAT.md, "History": history/{queue}/{date}/{process}.ndjson, then {process}-1.ndjson and so on.
Nothing is made before the first line is written.
"""

import os
import re
from datetime import UTC, datetime
from typing import Final, NamedTuple

from mq.store.format.layout import Layout

_FOLDER: Final = "history"
_SUFFIX: Final = ".ndjson"
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_FILE: Final = re.compile(r"[a-z][a-z-]{0,31}-[0-9a-f]{16}(-[1-9][0-9]{0,8})?\.ndjson")
# Not the pid, which processes of two machines may share.
_PROCESS: Final = os.urandom(8).hex()


class Day(NamedTuple):
    """A queue's name, and a day in UTC as the name of its folder."""

    queue: str
    date: str


def process_name(kind: str) -> str:
    """This process's name in its lines and files; `kind` has small letters and `-`."""
    return f"{kind}-{_PROCESS}"


def date_of(ms: int) -> str:
    """The day of a time in milliseconds since the epoch."""
    return f"{datetime.fromtimestamp(ms // 1000, UTC):%Y-%m-%d}"


def history_folder(layout: Layout) -> str:
    """The folder of the queues' folders."""
    return f"{layout.root}/{_FOLDER}"


def queue_folder(layout: Layout, queue: str) -> str:
    """The folder of a queue's days."""
    return f"{layout.root}/{_FOLDER}/{queue}"


def day_folder(layout: Layout, day: Day) -> str:
    return f"{layout.root}/{_FOLDER}/{day.queue}/{day.date}"


def history_file(layout: Layout, day: Day, process: str, number: int) -> str:
    """A process's file of that day with this number, from 0 on."""
    ending = f"-{number}{_SUFFIX}" if number else _SUFFIX
    return f"{layout.root}/{_FOLDER}/{day.queue}/{day.date}/{process}{ending}"


def folders_made(layout: Layout, day: Day) -> tuple[str, ...]:
    """The folders above a day's files, the outer ones first."""
    return history_folder(layout), queue_folder(layout, day.queue), day_folder(layout, day)


def is_date(name: str) -> bool:
    """Whether a queue's folder of this name is of a day."""
    return _DATE.fullmatch(name) is not None


def is_history_file(name: str) -> bool:
    """Whether a file of this name has lines."""
    return _FILE.fullmatch(name) is not None
