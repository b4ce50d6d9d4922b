"""Screening a folder's names, many at a time: what is plainly as it must be is counted, and of the
rest there are looks, the same as an auditor's.

What is passed here as plain no look would tell of; but for one message in two places, which nobody
sees who looks at one folder: `Screened.messages` is for whoever compares them.
"""

import contextlib
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Final

from mq.model.errors import BadName, SettingsUnreadable
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S, REASON_MAX, SWEEP_EVERY_S, UUID_CHARS
from mq.model.names import MessageId, QueueName, are_uuids
from mq.store.audit.breaches import Look, Spot
from mq.store.audit.folders import NameFolder, is_folder_of_removed
from mq.store.audit.keys import KeyLooker
from mq.store.audit.messages import ALIVE, MessageLooker, belongs
from mq.store.audit.screened import Ids, Kind, Said, Screened, said_by
from mq.store.core.root import Root
from mq.store.core.unreadable import is_readable
from mq.store.disk.files import FILE_MODE, FOLDER_MODE, is_gone
from mq.store.format.bucket_names import IN_COMMON, Shape, dashed, is_deep, parse_bucket
from mq.store.format.layout import Keys, entry_prefix, parse_entry, split_entry
from mq.store.format.pipeline import is_acknowledged
from mq.store.keys.orphans import KeyFolder

CHUNK_NAMES: Final = 10_000
_PLAIN_FILE: Final = stat.S_IFREG | FILE_MODE
_NEVER_NS: Final = -(1 << 63)
_NS_PER_MS: Final = 1_000_000
_NS_PER_RECEIVE: Final = 1000
_STRAYING: Final = (State.DELAYED, State.LEASED)


class Screen(MessageLooker, KeyLooker):
    """Looks at folders, some names at a time. `is_by_name`: by what listings say alone, so that
    nothing is told of what only the files themselves show (modes, times, header blocks).
    `has_deleted`: the messages of what was taken away as a whole are said, too.
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
        """The folder's names, and those of the folders below that are no others' to look at."""
        if folder.keys is not None:
            yield from self._keys_in(folder, folder.keys)
            return
        shape = self._shape_in(folder)
        listed = self._listed(folder.path)
        below: list[NameFolder] = []
        while chunk := list(islice(listed, CHUNK_NAMES)):
            yield self._chunk(folder, shape, chunk, below)
        for deeper in below:
            yield from self.screened(deeper)

    def look_at(self, folder: NameFolder, queue: QueueName, message_id: MessageId) -> Look:
        """The look at a message of the folder."""
        name = message_id.text if folder.queue else entry_prefix(queue) + message_id.text
        return self._look_named(folder, self._shape_in(folder), queue, name, message_id.text)

    def _keys_in(self, folder: NameFolder, kind: Keys) -> Iterator[Screened]:
        if folder.queue is None:
            return
        links = self._links(KeyFolder(kind, folder.queue, folder.path))
        while looks := list(islice(links, CHUNK_NAMES)):
            yield Screened(folder, len(looks), looks=looks)

    def _shape_in(self, folder: NameFolder) -> Shape | None:
        """By which a message's place follows from its id; None: it does not, or nobody knows."""
        if folder.queue is not None and folder.state is State.READY:
            with contextlib.suppress(SettingsUnreadable):
                return self._root.places.shape(folder.queue)
            return None
        is_placed = folder.state in (State.DELAYED, State.REMOVED) and folder.queue is None
        return IN_COMMON if is_placed and not is_acknowledged(folder.bucket[:-1]) else None

    def _chunk(
        self,
        folder: NameFolder,
        shape: Shape | None,
        chunk: "Sequence[os.DirEntry[str] | Look]",
        below: list[NameFolder],
    ) -> Screened:
        out = Screened(folder, len(chunk))
        entries = [found for found in chunk if isinstance(found, os.DirEntry)]
        if len(entries) < len(chunk):
            out.looks += [found for found in chunk if not isinstance(found, os.DirEntry)]
        plain, odd = self._by_name(entries) if self._is_by_name else self._by_file(folder, entries)
        for entry in odd:
            self._one(folder, shape, entry.name, Kind.of(entry), out, below)
        self._plain(folder, shape, plain, out)
        return out

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
        """The names of files that are as mq makes them, and what else there is."""
        plain: list[str] = []
        odd: list[os.DirEntry[str]] = []
        owner, state = self._owner, folder.state
        # Where the times say nothing, all of them pass.
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

    def _plain(
        self, folder: NameFolder, shape: Shape | None, names: Sequence[str], out: Screened
    ) -> None:
        if folder.queue is not None:
            self._ids(folder, shape, folder.queue, names, names, out)
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
                self._each(folder, shape, of_queue, out)
                continue
            if not self._wants(queue_name):
                continue
            if folder.state in _STRAYING and self._is_known_stray(queue_name):
                self._each(folder, shape, of_queue, out)
                continue
            at = len(entry_prefix(queue_name))
            texts = [name[at:] for name in of_queue]
            self._ids(folder, shape, queue_name, of_queue, texts, out)

    def _is_known_stray(self, queue: QueueName) -> bool:
        known = self._strays.get(queue)
        if known is None:
            known = self._strays[queue] = self._is_stray(queue)
        return known

    def _ids(
        self,
        folder: NameFolder,
        shape: Shape | None,
        queue: QueueName,
        names: Sequence[str],
        texts: Sequence[str],
        out: Screened,
    ) -> None:
        """Names of a queue's messages, all at once where they are nothing but that."""
        ends = {text[UUID_CHARS:] for text in texts}
        told = {end: said for end in ends if (said := said_by(end)) is not None}
        is_usual = len(told) == len(ends) and are_uuids([text[:UUID_CHARS] for text in texts])
        if not is_usual or not self._all_belong(folder, shape, texts, told.values()):
            self._few(folder, shape, queue, names, texts, out)
            return
        if any(said.is_more for said in told.values()):
            odd = self._with_more(folder, queue, texts, told)
            for at in odd:
                out.looks.append(self._look_named(folder, shape, queue, names[at], texts[at]))
        self._count(folder, queue, texts, out)

    def _few(
        self,
        folder: NameFolder,
        shape: Shape | None,
        queue: QueueName,
        names: Sequence[str],
        texts: Sequence[str],
        out: Screened,
    ) -> None:
        """The same, one by one."""
        good: list[str] = []
        for name, text in zip(names, texts, strict=True):
            said = said_by(text[UUID_CHARS:])
            if said is None or not MessageId.is_written(text):
                self._one(folder, shape, name, Kind.FILE, out, [])
                continue
            good.append(text)
            spot = Spot(folder.state or State.NEW, queue, MessageId.parse(text), folder.bucket)
            is_odd = shape is not None and not belongs(spot, shape)
            if is_odd or (
                said.is_more and self._with_more(folder, queue, [text], {text[UUID_CHARS:]: said})
            ):
                out.looks.append(self._look(folder, shape, spot, f"{folder.path}/{name}"))
        self._count(folder, queue, good, out)

    def _count(
        self, folder: NameFolder, queue: QueueName, texts: Sequence[str], out: Screened
    ) -> None:
        if folder.state is not None and texts:
            self.amounts.count(folder.state, queue.text, len(texts))
            if self._has_deleted or not folder.is_of_deleted:
                out.messages.append(Ids(queue, texts))

    @staticmethod
    def _all_belong(
        folder: NameFolder, shape: Shape | None, texts: Sequence[str], said: Iterable[Said]
    ) -> bool:
        """Whether all these lie where they belong, as far as that is seen at once."""
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
        # What is between two that begin so does, too.
        return min(texts).startswith(beginning) and max(texts).startswith(beginning)

    def _with_more(
        self,
        folder: NameFolder,
        queue: QueueName,
        texts: Sequence[str],
        said: Mapping[str, Said],
    ) -> list[int]:
        """Which of them have a key that its link does not say, or a block that is not sound."""
        if folder.state not in ALIVE or queue.is_sideline:
            return []
        odd = []
        for at, text in enumerate(texts):
            of = said[text[UUID_CHARS:]]
            is_odd = (
                of.key is not None
                and self._root.files.linked(self._layout.link(Keys.LOOKUP, queue, of.key).path)
                != text
            )
            if not is_odd and of.header_bytes and not self._is_by_name:
                is_odd = not self._has_sound_block(folder, queue, text, of.header_bytes)
            if is_odd:
                odd.append(at)
        return odd

    def _has_sound_block(
        self, folder: NameFolder, queue: QueueName, text: str, header_bytes: int
    ) -> bool:
        name = text if folder.queue is not None else entry_prefix(queue) + text
        try:
            block = self._root.files.read_file(f"{folder.path}/{name}", header_bytes)
        except OSError:
            return False
        return len(block) == header_bytes and is_readable(block)

    def _each(
        self, folder: NameFolder, shape: Shape | None, names: Sequence[str], out: Screened
    ) -> None:
        for name in names:
            self._one(folder, shape, name, Kind.FILE, out, [])

    def _one(
        self,
        folder: NameFolder,
        shape: Shape | None,
        name: str,
        kind: Kind,
        out: Screened,
        below: list[NameFolder],
    ) -> None:
        """Any one name: as an auditor goes through a folder."""
        path = f"{folder.path}/{name}"
        if kind is Kind.LINK:
            out.looks.append(partial(self._symlink, path))
        elif name.startswith("."):
            self.amounts.hidden += 1
        elif (folder.is_top and parse_bucket(name) is not None) or (
            folder.is_bucket and is_deep(name)
        ):
            self._folder_below(folder, name, kind, out, below)
        elif kind is Kind.FOLDER and folder.is_top and _is_anothers(folder, name):
            pass
        elif kind is not Kind.FILE or (of := self._message_of(folder, name)) is None:
            if self._may_be_wanted(folder, name):
                self._foreign(name)
                out.foreign.append(path)
        elif self._wants(of[0]) and folder.state is not None:
            queue, message_id = of
            spot = Spot(folder.state, queue, message_id, folder.bucket)
            self._count(folder, queue, [message_id.text], out)
            out.looks.append(self._look(folder, shape, spot, path))

    def _folder_below(
        self,
        folder: NameFolder,
        name: str,
        kind: Kind,
        out: Screened,
        below: list[NameFolder],
    ) -> None:
        path = f"{folder.path}/{name}"
        if kind is not Kind.FOLDER:
            out.looks.append(partial(self._in_the_way, path, stat.S_IFDIR))
        elif folder.is_bucket and not folder.is_split:
            out.looks.append(partial(self._kept, path, FOLDER_MODE))
            below.append(replace(folder, path=path, bucket=f"{folder.bucket}{name}/"))

    def _may_be_wanted(self, folder: NameFolder, name: str) -> bool:
        """Whether a foreign name concerns who asks for some queues alone."""
        return folder.queue is not None or not self._is_narrowed

    @staticmethod
    def _message_of(folder: NameFolder, name: str) -> tuple[QueueName, MessageId] | None:
        try:
            if folder.queue is not None:
                return folder.queue, MessageId.parse(name)
            return parse_entry(name)
        except BadName:
            return None

    def _look_named(
        self, folder: NameFolder, shape: Shape | None, queue: QueueName, name: str, text: str
    ) -> Look:
        spot = Spot(folder.state or State.NEW, queue, MessageId.parse(text), folder.bucket)
        return self._look(folder, shape, spot, f"{folder.path}/{name}")

    def _look(self, folder: NameFolder, shape: Shape | None, spot: Spot, path: str) -> Look:
        if folder.is_of_deleted:
            return partial(self._file, spot, path)
        return partial(self._message, spot, path, shape)


def _is_anothers(folder: NameFolder, name: str) -> bool:
    """Whether a folder of this name in remove/ is looked at by itself."""
    is_removed = folder.state is State.REMOVED and folder.queue is None
    return is_removed and is_folder_of_removed(name)
