"""Screens a folder's names in bulk: counts plain names, and yields an auditor's checks for the
rest.

No check would report a plain name, except for a message in two places. One folder alone cannot show
that: `Screened.messages` is for the comparison.
"""

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import lru_cache, partial
from itertools import islice
from typing import Final, NamedTuple

from mq.model.errors import BadName, SettingsUnreadable
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S, REASON_MAX, SWEEP_EVERY_S, UUID_CHARS
from mq.model.names import PACKED, Key, MessageId, QueueName, are_uuids, items_of
from mq.store.audit.findings import Look
from mq.store.audit.folders import NameFolder, is_folder_of_removed
from mq.store.audit.keys import KeyLooker
from mq.store.audit.messages import ALIVE, MessageLooker, belongs
from mq.store.core.message_file import is_readable
from mq.store.core.root import Root
from mq.store.disk.files import FILE_MODE, FOLDER_MODE, is_gone
from mq.store.format.bucket_names import IN_COMMON, Shape, dashed, parse_bucket
from mq.store.format.layout import KEYS_FOLDERS, Keys, Place, entry_prefix, parse_entry, split_entry
from mq.store.format.pipeline import is_acknowledged
from mq.store.format.walk import Holds, holds_inside
from mq.store.keys.entries import is_entered
from mq.store.keys.orphans import KeyFolder

CHUNK_NAMES: Final = 10_000
_PLAIN_FILE: Final = stat.S_IFREG | FILE_MODE
_NEVER_NS: Final = -(1 << 63)
_NS_PER_MS: Final = 1_000_000
_NS_PER_RECEIVE: Final = 1000
_STRAYING: Final = (State.DELAYED, State.LEASED)
_SOME_UUID: Final = "00000000-0000-7000-8000-000000000000"


class Ids(NamedTuple):
    queue: QueueName
    texts: Sequence[str]


@dataclass(slots=True)
class Screened:
    """A part of a folder's names: their number, the messages that may also lie elsewhere, the
    checks of names that are not plain, and the paths of foreign names. `shape`: determines a
    message's place there. `below`: folders that are screened with this one.
    """

    folder: NameFolder
    names: int = 0
    shape: Shape | None = None
    messages: list[Ids] = field(default_factory=list)
    looks: list[Look] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)
    below: list[NameFolder] = field(default_factory=list)


class Kind(Enum):
    """The kind of an entry; symbolic links are not followed."""

    FILE = "a file"
    FOLDER = "a folder"
    LINK = "a symbolic link"
    OTHER = "something else"

    @classmethod
    def of(cls, entry: "os.DirEntry[str]") -> "Kind":
        if entry.is_symlink():
            return cls.LINK
        if entry.is_dir(follow_symlinks=False):
            return cls.FOLDER
        return cls.FILE if entry.is_file(follow_symlinks=False) else cls.OTHER


class Said(NamedTuple):
    """The attributes in an id that need checks."""

    priority: int
    key: Key | None
    header_bytes: int
    is_entered: bool
    is_packed: bool
    """Whether it is a pack's, or an item's of one."""

    @property
    def is_more(self) -> bool:
        """Whether anything beside the file must be checked."""
        return self.key is not None or self.header_bytes > 0 or self.is_entered or self.is_packed


@lru_cache(4096)
def said_by(end: str) -> Said | None:
    """Parses the part of an id behind its uuid; None: it is not an id's."""
    try:
        found = MessageId.parse(_SOME_UUID + end)
    except BadName:
        return None
    is_packed = PACKED in end
    return Said(found.priority, found.key, found.header_bytes, found.is_entered, is_packed)


class Screen(MessageLooker, KeyLooker):
    """Screens folders in chunks. `is_by_name`: only by listings; modes, times and header blocks are
    not checked. `has_deleted`: also reports the messages in folders of deleted queues.
    """

    def __init__(
        self,
        root: Root,
        overdue_s: float,
        queues: Collection[QueueName] | None = None,
        *,
        is_by_name: bool = False,
        has_deleted: bool = False,
    ) -> None:
        super().__init__(root, overdue_s, queues)
        self._is_by_name = is_by_name
        self._has_deleted = has_deleted
        self._strays: dict[QueueName, bool] = {}

    def screened(self, folder: NameFolder) -> Iterator[Screened]:
        """The names of the folder, and of folders below it that are not screened separately."""
        if folder.keys is not None:
            yield from self._keys_in(folder, folder.keys)
            return
        shape = self._shape_in(folder)
        listed = self._listed(folder.path)
        below: list[NameFolder] = []
        while chunk := list(islice(listed, CHUNK_NAMES)):
            out = Screened(folder, len(chunk), shape=shape)
            self._chunk(chunk, out)
            below += out.below
            yield out
        for deeper in below:
            yield from self.screened(deeper)

    def look_at(self, folder: NameFolder, queue: QueueName, message_id: MessageId) -> Look:
        """The check of a message in the folder."""
        name = message_id.text if folder.queue else entry_prefix(queue) + message_id.text
        out = Screened(folder, shape=self._shape_in(folder))
        return self._look_named(out, queue, name, message_id.text)

    def _keys_in(self, folder: NameFolder, kind: Keys) -> Iterator[Screened]:
        if folder.queue is None:
            return
        links = self._links(KeyFolder(kind, folder.queue, folder.path))
        while looks := list(islice(links, CHUNK_NAMES)):
            yield Screened(folder, len(looks), looks=looks)

    def _shape_in(self, folder: NameFolder) -> Shape | None:
        """The shape that determines a message's place; None: there is none, or it is not known."""
        if folder.queue is not None and folder.state is State.READY:
            with contextlib.suppress(SettingsUnreadable):
                return self._root.facts.shape_now(folder.queue)
            return None
        is_placed = folder.state in (State.DELAYED, State.REMOVED) and folder.queue is None
        return IN_COMMON if is_placed and not is_acknowledged(folder.bucket[:-1]) else None

    def _chunk(self, chunk: "Sequence[os.DirEntry[str] | Look]", out: Screened) -> None:
        entries = [found for found in chunk if isinstance(found, os.DirEntry)]
        if len(entries) < len(chunk):
            out.looks += [found for found in chunk if not isinstance(found, os.DirEntry)]
        plain, odd = (
            self._by_name(entries) if self._is_by_name else self._by_file(out.folder, entries)
        )
        for entry in odd:
            self._one(out, entry.name, Kind.of(entry))
        self._plain(out, plain)

    @staticmethod
    def _by_name(
        entries: "Sequence[os.DirEntry[str]]",
    ) -> "tuple[list[str], list[os.DirEntry[str]]]":
        plain, odd = [], []
        for entry in entries:
            if entry.is_file(follow_symlinks=False):
                plain.append(entry.name)
            else:
                odd.append(entry)
        return plain, odd

    def _by_file(
        self, folder: NameFolder, entries: "Sequence[os.DirEntry[str]]"
    ) -> "tuple[list[str], list[os.DirEntry[str]]]":
        """Separates the names of plain files, with valid mode, owner and times, from other
        entries.
        """
        plain: list[str] = []
        odd: list[os.DirEntry[str]] = []
        owner, state = self._owner, folder.state
        # Values that every time passes, for states whose times do not matter.
        grain = _NS_PER_RECEIVE if state in ALIVE else 1
        now_ns = self._root.now_ms() * _NS_PER_MS
        due_ns = written_ns = _NEVER_NS
        if state is State.DELAYED:
            due_ns = now_ns - self._overdue_ms * _NS_PER_MS
        elif state is State.NEW:
            swept_ms = (FORGOTTEN_AFTER_S + SWEEP_EVERY_S) * 1000 + self._overdue_ms
            written_ns = now_ns - round(swept_ms) * _NS_PER_MS
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError as error:
                if not is_gone(error):
                    odd.append(entry)
                continue
            mtime_ns = status.st_mtime_ns
            if (
                status.st_mode == _PLAIN_FILE
                and status.st_uid == owner
                and status.st_nlink == 1
                and mtime_ns % grain <= REASON_MAX
                and mtime_ns >= due_ns
                and status.st_ctime_ns >= written_ns
            ):
                plain.append(entry.name)
            else:
                odd.append(entry)
        return plain, odd

    def _plain(self, out: Screened, names: Sequence[str]) -> None:
        folder = out.folder
        if folder.queue is not None:
            self._ids(out, folder.queue, names, names)
            return
        by_queue: dict[str, list[str]] = {}
        for name in names:
            queue, _ = split_entry(name)
            if queue in by_queue:
                by_queue[queue].append(name)
            else:
                by_queue[queue] = [name]
        for text, of_queue in by_queue.items():
            try:
                queue_name = QueueName.parse(text)
            except BadName:
                self._each(out, of_queue)
                continue
            if not self._wants(queue_name):
                continue
            if folder.state in _STRAYING and self._is_known_stray(queue_name):
                self._each(out, of_queue)
                continue
            at = len(entry_prefix(queue_name))
            self._ids(out, queue_name, of_queue, [name[at:] for name in of_queue])

    def _is_known_stray(self, queue: QueueName) -> bool:
        known = self._strays.get(queue)
        if known is None:
            known = self._strays[queue] = self._is_stray(queue)
        return known

    def _ids(
        self, out: Screened, queue: QueueName, names: Sequence[str], texts: Sequence[str]
    ) -> None:
        """Screens names of one queue, all at once if each is a valid id in its place."""
        ends = {text[UUID_CHARS:] for text in texts}
        told = {end: said for end in ends if (said := said_by(end)) is not None}
        is_usual = len(told) == len(ends) and are_uuids([text[:UUID_CHARS] for text in texts])
        if not is_usual or not self._all_belong(out, texts, told.values()):
            self._few(out, queue, names, texts)
            return
        if any(said.is_more for said in told.values()):
            for at in self._with_more(out.folder, queue, texts, told):
                out.looks.append(self._look_named(out, queue, names[at], texts[at]))
        self._count(out, queue, texts)

    def _few(
        self, out: Screened, queue: QueueName, names: Sequence[str], texts: Sequence[str]
    ) -> None:
        folder, shape = out.folder, out.shape
        good: list[str] = []
        for name, text in zip(names, texts, strict=True):
            said = said_by(text[UUID_CHARS:])
            if said is None or not MessageId.is_written(text):
                self._one(out, name, Kind.FILE)
                continue
            good.append(text)
            spot = Place(folder.state or State.NEW, queue, MessageId.parse(text), folder.bucket)
            is_odd = shape is not None and not belongs(spot, shape)
            if is_odd or (
                said.is_more and self._with_more(folder, queue, [text], {text[UUID_CHARS:]: said})
            ):
                out.looks.append(self._look(out, spot, f"{folder.path}/{name}"))
        self._count(out, queue, good)

    def _count(self, out: Screened, queue: QueueName, texts: Sequence[str]) -> None:
        folder = out.folder
        if folder.state is not None and texts:
            number = len(texts)
            if any(PACKED in text for text in texts):
                number = sum(map(items_of, texts))
            self.amounts.count(folder.state, queue.text, number)
            if self._has_deleted or not folder.is_of_deleted:
                out.messages.append(Ids(queue, texts))

    @staticmethod
    def _all_belong(out: Screened, texts: Sequence[str], said: Iterable[Said]) -> bool:
        """Whether all names certainly lie in the right bucket, by a quick test."""
        folder, shape = out.folder, out.shape
        if shape is None or not folder.bucket:
            return True
        outer, _, inner = folder.bucket[:-1].partition("/")
        bucket = parse_bucket(outer)
        if bucket is None or shape.shards > 1 or bucket.shard is not None:
            return False
        priorities = {each.priority if shape.by_priority else 0 for each in said}
        if priorities != {bucket.priority} or len(bucket.digits) != shape.digits:
            return False
        beginning = dashed(bucket.digits + inner)
        # Then every name between these two has the prefix as well.
        return min(texts).startswith(beginning) and max(texts).startswith(beginning)

    def _with_more(
        self, folder: NameFolder, queue: QueueName, texts: Sequence[str], said: Mapping[str, Said]
    ) -> list[int]:
        """The indexes of messages whose key's link does not name them, that lack an index entry, or
        whose header block is invalid.
        """
        if folder.state not in ALIVE or queue.is_sideline:
            return []
        odd = []
        packs: dict[str, bool] = {}
        for at, text in enumerate(texts):
            of = said[text[UUID_CHARS:]]
            is_odd = (
                of.key is not None
                and self._root.files.linked(self._layout.link(Keys.LOOKUP, queue, of.key).path)
                != text
            )
            if not is_odd and of.is_entered:
                is_odd = not is_entered(
                    self._root, queue, MessageId.parse(text), self._path(folder, queue, text)
                )
            if not is_odd and of.is_packed:
                is_odd = self._is_odd_pack(folder, queue, text, packs)
            if not is_odd and of.header_bytes and not self._is_by_name:
                is_odd = not self._has_sound_block(folder, queue, text, of.header_bytes)
            if is_odd:
                odd.append(at)
        return odd

    def _is_odd_pack(
        self, folder: NameFolder, queue: QueueName, text: str, packs: dict[str, bool]
    ) -> bool:
        """Whether a pack is unreadable, or the pack of an item is there too. `packs`: the known
        ones, by their ids.
        """
        message_id = MessageId.parse(text)
        if message_id.items:
            if self._is_by_name:
                return False
            try:
                return not self._holds_pack(message_id, self._path(folder, queue, text))
            except OSError:
                return True
        pack = message_id.pack()
        if pack.text not in packs:
            packs[pack.text] = self._is_pack_there(queue, pack)
        return packs[pack.text]

    @staticmethod
    def _path(folder: NameFolder, queue: QueueName, text: str) -> str:
        return f"{folder.path}/{text if folder.queue is not None else entry_prefix(queue) + text}"

    def _has_sound_block(
        self, folder: NameFolder, queue: QueueName, text: str, header_bytes: int
    ) -> bool:
        try:
            block = self._root.files.read_file(self._path(folder, queue, text), header_bytes)
        except OSError:
            return False
        return len(block) == header_bytes and is_readable(block)

    def _each(self, out: Screened, names: Sequence[str]) -> None:
        for name in names:
            self._one(out, name, Kind.FILE)

    def _one(self, out: Screened, name: str, kind: Kind) -> None:
        """Screens a single name, as an auditor would."""
        folder = out.folder
        path = f"{folder.path}/{name}"
        if kind is Kind.LINK:
            out.looks.append(partial(self._symlink, path))
        elif name.startswith("."):
            self.amounts.hidden += name not in KEYS_FOLDERS
        elif holds_inside(folder.holds, name) is not None:
            self._folder_below(out, name, kind)
        elif kind is Kind.FOLDER and folder.is_top and _is_anothers(folder, name):
            pass
        elif kind is not Kind.FILE or (of := self._message_of(folder, name)) is None:
            if self._may_be_wanted(folder, name):
                self._foreign(name)
                out.foreign.append(path)
        elif self._wants(of[0]) and folder.state is not None:
            queue, message_id = of
            spot = Place(folder.state, queue, message_id, folder.bucket)
            self._count(out, queue, [message_id.text])
            out.looks.append(self._look(out, spot, path))

    def _folder_below(self, out: Screened, name: str, kind: Kind) -> None:
        folder = out.folder
        path = f"{folder.path}/{name}"
        if kind is not Kind.FOLDER:
            out.looks.append(partial(self._in_the_way, path, stat.S_IFDIR))
        elif folder.holds is Holds.DEEP and not folder.is_split:
            out.looks.append(partial(self._kept, path, FOLDER_MODE))
            out.below.append(replace(folder, path=path, bucket=f"{folder.bucket}{name}/"))

    def _may_be_wanted(self, folder: NameFolder, name: str) -> bool:
        """Whether a foreign name concerns an audit of some queues only."""
        return folder.queue is not None or not self._is_narrowed

    @staticmethod
    def _message_of(folder: NameFolder, name: str) -> tuple[QueueName, MessageId] | None:
        try:
            if folder.queue is not None:
                return folder.queue, MessageId.parse(name)
            return parse_entry(name)
        except BadName:
            return None

    def _look_named(self, out: Screened, queue: QueueName, name: str, text: str) -> Look:
        folder = out.folder
        spot = Place(folder.state or State.NEW, queue, MessageId.parse(text), folder.bucket)
        return self._look(out, spot, f"{folder.path}/{name}")

    def _look(self, out: Screened, spot: Place, path: str) -> Look:
        if out.folder.is_of_deleted:
            return partial(self._file, spot, path)
        return partial(self._message, spot, path, out.shape)


def _is_anothers(folder: NameFolder, name: str) -> bool:
    """Whether a folder of this name in remove/ is screened separately."""
    is_removed = folder.state is State.REMOVED and folder.queue is None
    return is_removed and is_folder_of_removed(name)
