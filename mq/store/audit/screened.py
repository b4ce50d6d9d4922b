"""What a screen of names finds, and what it tells names apart by."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

from mq.model.errors import BadName
from mq.model.names import Key, MessageId, QueueName
from mq.store.audit.breaches import Look
from mq.store.audit.folders import NameFolder

_SOME_UUID: Final = "00000000-0000-7000-8000-000000000000"


class Ids(NamedTuple):
    """Ids' texts, of a queue."""

    queue: QueueName
    texts: Sequence[str]


@dataclass(slots=True)
class Screened:
    """Some names of a folder: how many, the messages among them that may lie elsewhere too, the
    looks at what is not plain, and the paths of what is none of mq's.
    """

    folder: NameFolder
    names: int = 0
    messages: list[Ids] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)


class Kind(Enum):
    """What is under a name, links not followed."""

    FILE = "a file"
    FOLDER = "a folder"
    LINK = "a symbolic link"
    OTHER = "something else"

    @classmethod
    def of(cls, entry: "os.DirEntry[str]") -> "Kind":
        """As a listing says it."""
        if entry.is_symlink():
            return cls.LINK
        if entry.is_dir(follow_symlinks=False):
            return cls.FOLDER
        return cls.FILE if entry.is_file(follow_symlinks=False) else cls.OTHER


class Said(NamedTuple):
    """What an id's end says that is to be looked at."""

    priority: int
    key: Key | None
    header_bytes: int

    @property
    def is_more(self) -> bool:
        """Whether there is something beside the file to be looked at."""
        return self.key is not None or self.header_bytes > 0


@lru_cache(4096)
def said_by(end: str) -> Said | None:
    """What stands behind an id's uuid; None: it is no id's."""
    try:
        found = MessageId.parse(_SOME_UUID + end)
    except BadName:
        return None
    return Said(found.priority, found.key, found.header_bytes)
