"""Folders and paths of a root: the one module that knows their names and separators.

FORMAT.md, "folders", has them all; a deleted queue's folder lies in `remove/{queue}:{uuid}.d`, its
keys beside that, with `.k`, `.i` and `.f`. Below queues/{queue}/, delay/ and remove/ a message may
lie in a bucket, or below one: a `bucket` here is what stands between such a folder and the
message's name, "" or `{bucket}/` or `{bucket}/{two digits}/`; below leases/, the folder of its
lease and a slash.
"""

import hashlib
import os
import re
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Final, Self

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.limits import FILE_NAME_BYTES_MAX
from mq.model.names import Key, MessageId, QueueName

FORMAT_LINE: Final = "mq 1\n"

_SEPARATOR: Final = ":"
# Not the pid, which processes of two machines or containers may share.
_PROCESS: Final = os.urandom(8).hex()
_DELETED_FOLDER_SUFFIX: Final = ".d"
_SETTINGS_SUFFIX: Final = ".json"
_HASH_DIGITS: Final = 2
# Beside the links of a folder: what is locked to change one, and the next meaning of one.
_LINKS_LOCK: Final = ".lock"
_NEW_LINK: Final = ".new"
_UNFINISHED: Final = re.compile(rf"\.[A-Za-z0-9][A-Za-z0-9_.-]*\.[0-9a-f]{{{len(_PROCESS)}}}")

# Paths are made several times in every operation, and an enumeration's members cost a look each.
_NEW, _READY, _DELAYED, _REMOVED = State.NEW, State.READY, State.DELAYED, State.REMOVED
_LEASED = State.LEASED

_HASHED: Final = re.compile(rf"[0-9a-f]{{{_HASH_DIGITS}}}")


class Keys(Enum):
    """What keys are of: messages that live, publishes of late, or firings of schedules. The value
    is their folder.
    """

    LOOKUP = "keys"
    IDEMPOTENCY = "idempotency"
    FIRING = "firings"


_DELETED_KEYS_SUFFIX: Final = {Keys.LOOKUP: ".k", Keys.IDEMPOTENCY: ".i", Keys.FIRING: ".f"}


@dataclass(frozen=True, slots=True)
class LinkPlace:
    """Where the symbolic link of a key is, and what leads to it: the folder of all queues' keys,
    of the queue's, and of those whose hash begins alike.
    """

    top: str
    of_queue: str
    folder: str
    path: str

    @property
    def made(self) -> tuple[str, str]:
        """The folders that are made by the first who needs them, the outer one first."""
        return self.of_queue, self.folder

    @property
    def lock(self) -> str:
        """What whoever changes a link of the folder has locked."""
        return f"{self.folder}/{_LINKS_LOCK}"

    @property
    def new(self) -> str:
        """Where a link is made that takes another's name. A dotfile: it means nothing until then.
        For whoever has the lock.
        """
        return f"{self.folder}/{_NEW_LINK}"


@dataclass(frozen=True, slots=True)
class Layout:
    """The paths of one root, absolute and as strings: they are made on every operation."""

    root: str
    new: str
    queues: str
    delay: str
    remove: str
    settings: str
    """The folder of queues' settings."""

    @classmethod
    def of(cls, root: str | Path) -> Self:
        """The layout of a root, made absolute."""
        top = os.path.abspath(root)
        folders = (f"{top}/{name}" for name in ("new", "queues", "delay", "remove", "settings"))
        return cls(top, *folders)

    @classmethod
    def between(cls, source: Path, destination: Path) -> Self:
        """The layout around a folder of delayed messages and one of queues, wherever they are:
        their tombstones and what is removed lie beside the source, settings beside the queues.
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
    def tombstones(self) -> str:
        """The folder of deleted queues' tombstones."""
        return f"{self.root}/deleted"

    @property
    def queues_lock(self) -> str:
        """The file that whoever makes or deletes a queue has locked."""
        return f"{self.tombstones}/.lock"

    @property
    def leases(self) -> str:
        """The folder of leases: `format.pipeline` has what lies in it."""
        return f"{self.root}/leases"

    @property
    def journal(self) -> str:
        """The folder of the journals of bulk publishes, also there."""
        return f"{self.root}/journal"

    @property
    def schedules(self) -> str:
        """The folder of schedules: `format.schedules` has what lies in it."""
        return f"{self.root}/schedules"

    @property
    def members(self) -> str:
        """The folder in which processes that share upkeep say so: see `format.members`."""
        return f"{self.root}/members"

    @property
    def shovels(self) -> str:
        """The folder of what is said of shovels: see `format.shovels`."""
        return f"{self.root}/shovels"

    @property
    def lost(self) -> str:
        """The folder of what fsck has set aside; made when it is first needed."""
        return f"{self.root}/lost"

    @property
    def crossings(self) -> str:
        """The folder of what shovels between any two queues have chosen: see `format.crossings`.
        Made when it is first needed.
        """
        return f"{self.root}/crossings"

    def made_later(self) -> tuple[str, ...]:
        """Folders that are there from their first use on."""
        return self.lost, self.crossings

    @property
    def purged(self) -> str:
        """The folder of queues' purge marks."""
        return f"{self.root}/purged"

    def folder(self, state: State) -> str:
        """The top folder of a state; for READY, the folder of the queues' folders."""
        if state is _READY:
            return self.queues
        if state is _DELAYED:
            return self.delay
        if state is _REMOVED:
            return self.remove
        if state is _LEASED:
            return self.leases
        if state is _NEW:
            return self.new
        raise ValueError("nothing lies nowhere")

    def folders(self) -> tuple[str, ...]:
        """Every folder that a root needs."""
        states = (self.new, self.queues, self.delay, self.remove)
        beside = (self.tombstones, self.settings, self.purged, self.schedules)
        bulk = (self.leases, self.journal)
        upkeep = (self.members, self.shovels)
        return (*states, *beside, *bulk, *upkeep, *map(self.keys, Keys))

    def keys(self, kind: Keys) -> str:
        """The folder of the folders of queues' keys."""
        return f"{self.root}/{kind.value}"

    def keys_of(self, kind: Keys, queue: QueueName) -> str:
        """The folder of a queue's keys; there from the first one on."""
        return f"{self.root}/{kind.value}/{queue.text}"

    def link(self, kind: Keys, queue: QueueName, key: Key) -> LinkPlace:
        """The place of a key's link."""
        written = key.written()
        of_queue = self.keys_of(kind, queue)
        hashed = hashlib.sha256(written.encode("ascii")).hexdigest()[:_HASH_DIGITS]
        folder = f"{of_queue}/{hashed}"
        return LinkPlace(self.keys(kind), of_queue, folder, f"{folder}/{written}")

    def deleted_keys(self, kind: Keys, queue: QueueName, uuid: str) -> str:
        """Where a deleted queue's keys go."""
        return f"{self.remove}/{queue.text}{_SEPARATOR}{uuid}{_DELETED_KEYS_SUFFIX[kind]}"

    def settings_of(self, queue: QueueName) -> str:
        """The file with the queue's settings, where they are not all defaults."""
        return f"{self.settings}/{queue.text}{_SETTINGS_SUFFIX}"

    def new_settings_of(self, queue: QueueName) -> str:
        """Where this process writes them. A dotfile: it means nothing until it is renamed."""
        return f"{self.settings}/{new_name(queue.text)}"

    def queue(self, queue: QueueName) -> str:
        """The folder of a queue's ready messages; the queue exists while it does."""
        return f"{self.queues}/{queue.text}"

    def tombstone(self, queue: QueueName) -> str:
        """The file that says that the queue was deleted and not yet made again."""
        return f"{self.tombstones}/{queue.text}"

    def purge_mark(self, queue: QueueName) -> str:
        """The file whose mtime says up to when the queue was purged."""
        return f"{self.purged}/{queue.text}"

    def new_purge_mark(self, queue: QueueName) -> str:
        """Where this process writes it. A dotfile, as with settings."""
        return f"{self.purged}/{new_name(queue.text)}"

    def base(self, state: State, queue: QueueName) -> str:
        """The folder whose buckets the queue's messages of a state may lie in."""
        return self.queue(queue) if state is _READY else self.folder(state)

    def parent(self, state: State, queue: QueueName, bucket: str = "") -> str:
        """The folder that a message of the queue lies in while it is in the state."""
        base = self.base(state, queue)
        return f"{base}/{bucket[:-1]}" if bucket else base

    def path(self, state: State, queue: QueueName, message_id: MessageId, bucket: str = "") -> str:
        """Where the message's file is while it is in the state."""
        if state is _READY:
            return f"{self.queues}/{queue.text}/{bucket}{message_id.text}"
        return f"{self.folder(state)}/{bucket}{queue.text}{_SEPARATOR}{message_id.text}"

    def beginning(self, state: State, queue: QueueName, bucket: str = "") -> str:
        """What stands before the id in the paths of all the queue's messages there: `path`, for
        many at once.
        """
        if state is _READY:
            return f"{self.queues}/{queue.text}/{bucket}"
        return f"{self.folder(state)}/{bucket}{queue.text}{_SEPARATOR}"

    def deleted_folder(self, queue: QueueName, uuid: str) -> str:
        """Where a deleted queue's folder goes: the uuid tells one deletion from the next."""
        return f"{self.remove}/{queue.text}{_SEPARATOR}{uuid}{_DELETED_FOLDER_SUFFIX}"

    def lost_file(self, name: str, uuid: str) -> str:
        """Where fsck sets something aside that had this name, or this entry's. The uuid tells it
        from others of the name; what is too long is cut.
        """
        kept = os.fsencode(f"{uuid}{_SEPARATOR}{name}")[:FILE_NAME_BYTES_MAX]
        return f"{self.lost}/{os.fsdecode(kept)}"

    def probe(self, state: State) -> str:
        """A file of this process to try the folder with. A dotfile, so that nobody takes it for
        a message.
        """
        return f"{self.folder(state)}/.probe.{_PROCESS}"


def entry_prefix(queue: QueueName) -> str:
    """How the names of the queue's files begin in new/, delay/ and remove/."""
    return queue.text + _SEPARATOR


def parse_entry(name: str) -> tuple[QueueName, MessageId]:
    """Reads a name of new/, delay/ or remove/. Raises BadName: the file is foreign."""
    queue, separator, message_id = name.partition(_SEPARATOR)
    if not separator:
        raise BadName("entry", "{queue}:{id}")
    return QueueName.parse(queue), MessageId.parse(message_id)


def split_entry(name: str) -> tuple[str, str]:
    """The parts of such a name, unread: queue and id. For many names at once; of a foreign one they
    are anything.
    """
    queue, _, message_id = name.partition(_SEPARATOR)
    return queue, message_id


def parse_delayed(name: str) -> tuple[QueueName, MessageId, str]:
    """Reads what follows `delay/` in a message's path: queue, id and bucket. Raises BadName."""
    bucket, separator, entry = name.rpartition("/")
    return (*parse_entry(entry), bucket + separator)


def parse_settings(name: str) -> QueueName:
    """The queue that a file of settings/ is of. Raises BadName: the file is foreign."""
    if not name.endswith(_SETTINGS_SUFFIX):
        raise BadName("settings", "{queue}.json")
    return QueueName.parse(name.removesuffix(_SETTINGS_SUFFIX))


def is_unfinished(name: str) -> bool:
    """Whether a file of this name in settings/ or purged/ was being written there."""
    return _UNFINISHED.fullmatch(name) is not None


def new_name(name: str) -> str:
    """What a file is called in its folder while this process writes it, before it is renamed to
    `name`. A dotfile: it means nothing until then.
    """
    return f".{name}.{_PROCESS}"


def is_deleted_folder(name: str) -> bool:
    """Whether a folder of this name in remove/ is a deleted queue's."""
    return _is_deleted(name, _DELETED_FOLDER_SUFFIX)


def deleted_ms(name: str) -> int | None:
    """When a folder of this name came to remove/, milliseconds since the epoch by the clock of who
    moved it there; None: it is no deleted queue's.
    """
    if not is_deleted_folder(name):
        return None
    return parse_deleted_folder(name)[1].published_ms


def parse_deleted_folder(name: str) -> tuple[QueueName, MessageId]:
    """Of which queue such a folder is, and of which deletion, by its uuid. Raises BadName."""
    return parse_entry(name.removesuffix(_DELETED_FOLDER_SUFFIX))


def are_deleted_keys(name: str) -> bool:
    """Whether a folder of this name in remove/ has a deleted queue's keys."""
    return any(_is_deleted(name, suffix) for suffix in _DELETED_KEYS_SUFFIX.values())


def _is_deleted(name: str, suffix: str) -> bool:
    if not name.endswith(suffix):
        return False
    try:
        parse_entry(name.removesuffix(suffix))
    except BadName:
        return False
    return True


def is_of_keys(name: str) -> bool:
    """Whether a folder of this name among a queue's keys holds those of one hash."""
    return _HASHED.fullmatch(name) is not None


def is_beside_links(name: str) -> bool:
    """Whether what has the name among links only helps to change them."""
    return name in (_LINKS_LOCK, _NEW_LINK)
