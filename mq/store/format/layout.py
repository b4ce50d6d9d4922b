"""The folders and paths of a root: the one module that knows their names and separators.

FORMAT.md, "folders", has them all. A deleted queue's folder is `remove/{queue}:{uuid}.d`, its
entries beside it with `.e` and `.t`. Below queues/{queue}/,
delay/ and remove/ a message may lie in a bucket, or in a folder below one: a `bucket` here is the
part of the path between such a folder and the message's name, "" or `{bucket}/` or `{bucket}/{two
digits}/`; below leases/, the folder of its lease and a slash.
"""

import hashlib
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Final, NamedTuple, Self

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.limits import FILE_NAME_BYTES_MAX
from mq.model.names import Key, MessageId, QueueName

FORMAT_LINE: Final = "mq 3\n"
UPGRADING_LINE: Final = "mq 3 begun\n"
OLD_FORMAT_LINES: Final = ("mq 1\n", "mq 2\n", UPGRADING_LINE)
"""The formats that `mqctl upgrade` converts."""

_SEPARATOR: Final = ":"
# Not the pid, which processes of two machines or containers may share.
_PROCESS: Final = os.urandom(8).hex()
_DELETED_FOLDER_SUFFIX: Final = ".d"
_SETTINGS_SUFFIX: Final = ".json"
_HASH_DIGITS: Final = 2
# The names beside the links of a folder: the lock for changing one, and the next target of one.
_LINKS_LOCK: Final = ".lock"
_NEW_LINK: Final = ".new"
TURN_SUFFIX: Final = ".lock"
_UNFINISHED: Final = re.compile(rf"\.[A-Za-z0-9][A-Za-z0-9_.-]*\.[0-9a-f]{{{len(_PROCESS)}}}")

# Operations make several paths each, and an enumeration's member costs a lookup.
_READY: Final = State.READY

_HASHED: Final = re.compile(rf"[0-9a-f]{{{_HASH_DIGITS}}}")


class Keys(Enum):
    """The kinds of keys: of living messages, of recent publishes, of firings of schedules, and of
    message groups. The value is the folder in a queue's folder.
    """

    LOOKUP = ".keys"
    IDEMPOTENCY = ".idempotency"
    FIRING = ".firings"
    GROUP = ".groups"


KEYS_FOLDERS: Final = frozenset(kind.value for kind in Keys)

EXPIRY_SUFFIX: Final = ".e"
TAGS_SUFFIX: Final = ".t"
DELETED_ENTRIES_SUFFIXES: Final = (EXPIRY_SUFFIX, TAGS_SUFFIX)


@dataclass(frozen=True, slots=True)
class LinkPlace:
    """The path of a key's symbolic link, and the folders above it: the queue's, that of the queue's
    keys of a kind, and of those with the same beginning of their hash.
    """

    of_queue: str
    of_kind: str
    folder: str
    path: str

    @property
    def made(self) -> tuple[str, str]:
        """The folders that are made on first use, the outer one first."""
        return self.of_kind, self.folder

    @property
    def lock(self) -> str:
        """The lock file for changes of the folder's links."""
        return f"{self.folder}/{_LINKS_LOCK}"

    @property
    def new(self) -> str:
        """Where a link is made that replaces another. A dotfile: it means nothing until then. The
        caller holds the lock.
        """
        return f"{self.folder}/{_NEW_LINK}"


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The paths of one root, absolute and as strings, since every operation makes some."""

    root: str
    new: str
    queues: str
    delay: str
    remove: str
    settings: str
    """The folder of queues' settings."""
    tops: Mapping[State, str] = field(init=False)
    """The folder of each state; for READY, the folder of the queues' folders."""

    def __post_init__(self) -> None:
        tops = {
            State.NEW: self.new,
            State.READY: self.queues,
            State.DELAYED: self.delay,
            State.LEASED: self.leases,
            State.REMOVED: self.remove,
        }
        object.__setattr__(self, "tops", tops)

    @classmethod
    def of(cls, root: str | Path) -> Self:
        """The layout of a root, made absolute."""
        top = os.path.abspath(root)
        folders = (f"{top}/{name}" for name in ("new", "queues", "delay", "remove", "settings"))
        return cls(top, *folders)

    @classmethod
    def between(cls, source: Path, destination: Path) -> Self:
        """The layout around any folder of delayed messages and any folder of queues: tombstones and
        remove/ are beside the source, settings beside the queues.
        """
        around = cls.of(source.absolute().parent)
        queues = os.path.abspath(destination)
        settings = cls.of(os.path.dirname(queues)).settings
        return replace(around, delay=os.path.abspath(source), queues=queues, settings=settings)

    @property
    def format(self) -> str:
        """The file whose one line names the format's version."""
        return f"{self.root}/format"

    @property
    def new_format(self) -> str:
        """Where this process writes that line anew. A dotfile: it means nothing until then."""
        return f"{self.root}/{new_name('format')}"

    @property
    def tombstones(self) -> str:
        """The folder of deleted queues' tombstones."""
        return f"{self.root}/deleted"

    @property
    def queues_lock(self) -> str:
        """The lock file for making and deleting queues."""
        return f"{self.tombstones}/.lock"

    @property
    def leases(self) -> str:
        """The folder of leases; see `format.pipeline`."""
        return f"{self.root}/leases"

    @property
    def journal(self) -> str:
        """The folder of the journals of bulk publishes; see `format.pipeline`."""
        return f"{self.root}/journal"

    @property
    def schedules(self) -> str:
        """The folder of schedules; see `format.schedules`."""
        return f"{self.root}/schedules"

    @property
    def members(self) -> str:
        """The folder of the reports of processes that share upkeep; see `format.members`."""
        return f"{self.root}/members"

    @property
    def shovels(self) -> str:
        """The folder of shovels' progress; see `format.shovels`."""
        return f"{self.root}/shovels"

    @property
    def lost(self) -> str:
        """The folder of files that fsck set aside; made on first use."""
        return f"{self.root}/lost"

    @property
    def crossings(self) -> str:
        """The folder of messages that shovels between any two queues have chosen; see
        `format.crossings`. Made on first use.
        """
        return f"{self.root}/crossings"

    @property
    def failures(self) -> str:
        """The folder of messages' failures; made on first use."""
        return f"{self.root}/failures"

    @property
    def totals(self) -> str:
        """The folder of queues' totals; see `format.totals`. Made on first use."""
        return f"{self.root}/totals"

    @property
    def trends(self) -> str:
        """The folder of the load over time; see `format.trends`. Made on first use."""
        return f"{self.root}/trends"

    def failure(self, message_id: MessageId) -> tuple[str, str, str]:
        """The file of a message's failures: its folder, its path, and where this process writes it.
        The folder is named by the last digits of the uuid, which are random.
        """
        folder = f"{self.failures}/{message_id.uuid[-_HASH_DIGITS:]}"
        return folder, f"{folder}/{message_id.uuid}", f"{folder}/{new_name(message_id.uuid)}"

    @property
    def active(self) -> str:
        """The folder of the turns at queues with a single active consumer; made on first use."""
        return f"{self.root}/active"

    @property
    def active_lock(self) -> str:
        """The lock file for removing files of turns there."""
        return f"{self.active}/{TURN_SUFFIX}"

    def active_turn(self, queue: QueueName) -> "TurnPlace":
        """The turn of the process with the queue's active consumer."""
        return TurnPlace(f"{self.active}/{queue.text}{TURN_SUFFIX}", self.active_lock)

    def made_later(self) -> tuple[str, ...]:
        """The folders that are made on first use."""
        return self.lost, self.crossings, self.failures, self.active, self.totals, self.trends

    @property
    def purged(self) -> str:
        """The folder of queues' purge marks."""
        return f"{self.root}/purged"

    def folder(self, state: State) -> str:
        """The top folder of a state; for READY, the folder of the queues' folders."""
        return self.tops[state]

    def folders(self) -> tuple[str, ...]:
        """Every folder that a root needs."""
        states = (self.new, self.queues, self.delay, self.remove)
        beside = (self.tombstones, self.settings, self.purged, self.schedules)
        bulk = (self.leases, self.journal)
        upkeep = (self.members, self.shovels)
        return (*states, *beside, *bulk, *upkeep)

    def keys_of(self, kind: Keys, queue: QueueName) -> str:
        """The folder of a queue's keys of a kind; made on first use."""
        return f"{self.queues}/{queue.text}/{kind.value}"

    def link(self, kind: Keys, queue: QueueName, key: Key) -> LinkPlace:
        written = key.written()
        of_queue = self.queue(queue)
        of_kind = f"{of_queue}/{kind.value}"
        hashed = hashlib.sha256(written.encode("ascii")).hexdigest()[:_HASH_DIGITS]
        folder = f"{of_kind}/{hashed}"
        return LinkPlace(of_queue, of_kind, folder, f"{folder}/{written}")

    def settings_of(self, queue: QueueName) -> str:
        """The file of the queue's settings; it exists if they are not all defaults."""
        return f"{self.settings}/{queue.text}{_SETTINGS_SUFFIX}"

    def new_settings_of(self, queue: QueueName) -> str:
        """Where this process writes the settings. A dotfile: it means nothing until it is
        renamed.
        """
        return f"{self.settings}/{new_name(queue.text)}"

    def queue(self, queue: QueueName) -> str:
        """The folder of a queue's ready messages; while it exists, the queue does."""
        return f"{self.queues}/{queue.text}"

    def tombstone(self, queue: QueueName) -> str:
        """The file that marks the queue as deleted and not made again."""
        return f"{self.tombstones}/{queue.text}"

    def purge_mark(self, queue: QueueName) -> str:
        """The file whose mtime is the time up to which the queue was purged."""
        return f"{self.purged}/{queue.text}"

    def new_purge_mark(self, queue: QueueName) -> str:
        """Where this process writes the mark. A dotfile, as for settings."""
        return f"{self.purged}/{new_name(queue.text)}"

    def base(self, state: State, queue: QueueName) -> str:
        """The folder with the buckets of the queue's messages of a state."""
        return self.queue(queue) if state is _READY else self.tops[state]

    def parent(self, state: State, queue: QueueName, bucket: str = "") -> str:
        """The folder of a queue's message in the state."""
        base = f"{self.queues}/{queue.text}" if state is _READY else self.tops[state]
        return f"{base}/{bucket[:-1]}" if bucket else base

    def path(self, state: State, queue: QueueName, message_id: MessageId, bucket: str = "") -> str:
        """The path of a message's file in the state."""
        if state is _READY:
            return f"{self.queues}/{queue.text}/{bucket}{message_id.text}"
        return f"{self.tops[state]}/{bucket}{queue.text}{_SEPARATOR}{message_id.text}"

    def beginning(self, state: State, queue: QueueName, bucket: str = "") -> str:
        """The part of `path` before the id, for many messages at once."""
        if state is _READY:
            return f"{self.queues}/{queue.text}/{bucket}"
        return f"{self.tops[state]}/{bucket}{queue.text}{_SEPARATOR}"

    def deleted_folder(self, queue: QueueName, uuid: str) -> str:
        """The place of a deleted queue's folder; the uuid tells deletions apart."""
        return f"{self.remove}/{queue.text}{_SEPARATOR}{uuid}{_DELETED_FOLDER_SUFFIX}"

    def lost_file(self, name: str, uuid: str) -> str:
        """The place in lost/ of a file with this name or entry name. The uuid tells files of one
        name apart; a long name is cut.
        """
        kept = os.fsencode(f"{uuid}{_SEPARATOR}{name}")[:FILE_NAME_BYTES_MAX]
        return f"{self.lost}/{os.fsdecode(kept)}"

    def probe(self, state: State) -> str:
        """A file of this process to probe the folder with. A dotfile, so that it is never taken for
        a message.
        """
        return f"{self.folder(state)}/.probe.{_PROCESS}"


class TurnPlace(NamedTuple):
    """The file of a turn (`core.turns`), and the lock file for removing such files."""

    path: str
    removals: str


class Place(NamedTuple):
    """The place of a message: its state, queue, id, and bucket there."""

    state: State
    queue: QueueName
    id: MessageId
    bucket: str = ""

    def path(self, layout: Layout) -> str:
        return layout.path(*self)


def parse_turn(entry: str) -> QueueName:
    """The queue of a file of active/. Raises BadName for a foreign file."""
    if not entry.endswith(TURN_SUFFIX):
        raise BadName("turn", "{queue}.lock")
    return QueueName.parse(entry.removesuffix(TURN_SUFFIX))


def entry_prefix(queue: QueueName) -> str:
    """The beginning of the names of the queue's files in new/, delay/ and remove/."""
    return queue.text + _SEPARATOR


def parse_entry(name: str) -> tuple[QueueName, MessageId]:
    """Parses a name of new/, delay/ or remove/. Raises BadName for a foreign file."""
    queue, separator, message_id = name.partition(_SEPARATOR)
    if not separator:
        raise BadName("entry", "{queue}:{id}")
    return QueueName.parse(queue), MessageId.parse(message_id)


def split_entry(name: str) -> tuple[str, str]:
    """The queue and id in such a name as texts. Does not validate, for speed: the result for a
    foreign name is undefined.
    """
    queue, _, message_id = name.partition(_SEPARATOR)
    return queue, message_id


def parse_delayed(name: str) -> tuple[QueueName, MessageId, str]:
    """Parses a message's path behind `delay/`: queue, id and bucket. Raises BadName."""
    bucket, separator, entry = name.rpartition("/")
    return (*parse_entry(entry), bucket + separator)


def parse_settings(name: str) -> QueueName:
    """The queue of a file of settings/. Raises BadName for a foreign file."""
    if not name.endswith(_SETTINGS_SUFFIX):
        raise BadName("settings", "{queue}.json")
    return QueueName.parse(name.removesuffix(_SETTINGS_SUFFIX))


def is_unfinished(name: str) -> bool:
    """Whether a file of this name is one that is being written, as `new_name` names it."""
    return _UNFINISHED.fullmatch(name) is not None


def new_name(name: str) -> str:
    """The temporary name of a file that this process writes, before it is renamed to `name`. A
    dotfile: it means nothing until then.
    """
    return f".{name}.{_PROCESS}"


def is_deleted_folder(name: str) -> bool:
    """Whether a folder of this name in remove/ is a deleted queue's."""
    return is_deleted(name, _DELETED_FOLDER_SUFFIX)


def deleted_ms(name: str) -> int | None:
    """When a deleted queue's folder came to remove/, in milliseconds since the epoch by the clock
    of the process that moved it; None: the name is another's.
    """
    if not is_deleted_folder(name):
        return None
    return parse_deleted_folder(name)[1].published_ms


def parse_deleted_folder(name: str) -> tuple[QueueName, MessageId]:
    """The queue of a deleted queue's folder, and the uuid of the deletion. Raises BadName."""
    return parse_entry(name.removesuffix(_DELETED_FOLDER_SUFFIX))


def is_deleted(name: str, suffix: str) -> bool:
    """Whether a name in remove/ is of a deleted queue, with this suffix."""
    if not name.endswith(suffix):
        return False
    try:
        parse_entry(name.removesuffix(suffix))
    except BadName:
        return False
    return True


def deleted_entries(layout: Layout, queue: QueueName, uuid: str, suffix: str) -> str:
    """The place of a deleted queue's entries."""
    return f"{layout.remove}/{queue.text}{_SEPARATOR}{uuid}{suffix}"


def are_deleted_entries(name: str) -> bool:
    """Whether a folder of this name in remove/ has a deleted queue's entries."""
    return any(is_deleted(name, suffix) for suffix in DELETED_ENTRIES_SUFFIXES)


def is_of_keys(name: str) -> bool:
    """Whether a folder of this name among a queue's keys holds the links of one hash."""
    return _HASHED.fullmatch(name) is not None


def is_beside_links(name: str) -> bool:
    """Whether the name among links is of a file that only helps to change them."""
    return name in (_LINKS_LOCK, _NEW_LINK)
