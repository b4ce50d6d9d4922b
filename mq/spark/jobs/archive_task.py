"""What a task of the archive does: it reads the messages of its part of a batch's names, and writes
them to files in staging.

No Spark here: it sees the root and the archive by the paths that the driver has.
"""

import errno
import hashlib
import os
import stat
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeAlias

from mq.model.bulk_limits import ARCHIVED_VALUE_BYTES_MAX
from mq.model.limits import CHUNK_BYTES
from mq.spark.jobs.archive_events import events_of
from mq.spark.jobs.archive_parts import BODIES, Parts, Place
from mq.spark.jobs.archive_rows import Body, Event, headers_of, removed_ms
from mq.store.archive.ledger import NameRange
from mq.store.disk.files import Files, is_gone
from mq.store.format.archive import RemovedName, parse_removed
from mq.store.format.history import date_of

_BODY_SUFFIX: Final = ".body"
_SLAB_NAMES: Final = 64
_SLABS_PER_THREAD: Final = 2
# What an open says of a symbolic link, and of a socket: no message.
_NO_FILES: Final = (errno.ELOOP, errno.ENXIO)


@dataclass(frozen=True, slots=True)
class Task:
    """A batch as its tasks know it; pickled with each of them. `removed`: the folder that the
    names are below, and `ranges`, a part each, where these are. `threads` read at a time, for a
    disk that lets one wait. `events`: the folder of what is known of the messages' histories, by
    parts; None: nothing is.
    """

    removed: str
    batch: int
    staging: str
    ranges: tuple[NameRange, ...]
    threads: int = 1
    events: str | None = None
    value_bytes_max: int = ARCHIVED_VALUE_BYTES_MAX


class Fact(NamedTuple):
    """What a task tells the driver: of a file (FILE, BODY: its name in staging, the folder it goes
    to, its bytes and those of the bodies in it), or of messages that are GONE or DAMAGED (how many,
    and of one of them the name).
    """

    kind: str
    name: str
    folder: str
    messages: int
    size_bytes: int = 0
    body_bytes: int = 0


FILE: Final = "file"
BODY: Final = "body"
GONE: Final = "gone"
DAMAGED: Final = "damaged"


class _Seen(NamedTuple):
    """A message's file as it was read; `content` None: it is longer than what is read at once."""

    message: RemovedName
    path: str
    status: os.stat_result
    content: bytes | None


_Look: TypeAlias = _Seen | str
"""What became of a name; the name itself where nothing is there that is a message."""


def archive_part(files: Files, task: Task, number: int) -> list[Fact]:
    """Archives one part of a batch. Durable on return: yes, all but the files' names.

    A name that is gone is told; raises OSError for what cannot be read or written, and BadName for
    a ledger that cannot be: then nothing of the batch is archived.
    """
    return _Part(files, task, number).facts(task.ranges[number].names(files))


class _Part:
    """One part of a batch, in its task."""

    def __init__(self, files: Files, task: Task, number: int) -> None:
        self._files = files
        self._task = task
        self._parts = Parts(files, task.staging, task.batch, number)
        self._events: Mapping[tuple[str, str], Sequence[Event]] = (
            {} if task.events is None else events_of(task.events, number)
        )
        self._facts: list[Fact] = []
        self._gone: list[str] = []
        self._damaged: list[str] = []

    def facts(self, names: Iterable[str]) -> list[Fact]:
        """Reads and writes all of them."""
        try:
            for look in self._looks(names):
                if isinstance(look, str):
                    self._gone.append(look)
                else:
                    self._add(look)
            written = self._parts.finish()
        finally:
            self._parts.abandon()
        self._facts += [
            Fact(FILE, each.name, each.folder, each.messages, each.size_bytes, each.body_bytes)
            for each in written
        ]
        for kind, found in ((GONE, self._gone), (DAMAGED, self._damaged)):
            if found:
                self._facts.append(Fact(kind, found[0], "", len(found)))
        return self._facts

    def _looks(self, names: Iterable[str]) -> Iterator[_Look]:
        rest = iter(names)
        slabs = iter(lambda: list(islice(rest, _SLAB_NAMES)), [])
        if self._task.threads == 1:
            for slab in slabs:
                yield from self._slab(slab)
            return
        yield from self._by_threads(slabs)

    def _by_threads(self, slabs: Iterable[list[str]]) -> Iterator[_Look]:
        ahead: deque[Future[list[_Look]]] = deque()
        threads = ThreadPoolExecutor(self._task.threads)
        try:
            for slab in slabs:
                ahead.append(threads.submit(self._slab, slab))
                if len(ahead) == _SLABS_PER_THREAD * self._task.threads:
                    yield from ahead.popleft().result()
            while ahead:
                yield from ahead.popleft().result()
        finally:
            threads.shutdown(cancel_futures=True)

    def _slab(self, names: list[str]) -> list[_Look]:
        return [self._look(name) for name in names]

    def _look(self, name: str) -> _Look:
        message = parse_removed(name)
        path = f"{self._task.removed}/{name}"
        try:
            status, content = self._files.read_opened(path)
        except OSError as error:
            if is_gone(error) or error.errno in _NO_FILES:
                return name
            raise
        return _Seen(message, path, status, content) if stat.S_ISREG(status.st_mode) else name

    def _add(self, seen: _Seen) -> None:
        message, status = seen.message, seen.status
        queue, message_id = message.queue, message.id
        came_ms = removed_ms(message, status.st_ctime_ns // 1_000_000)
        if status.st_size <= self._task.value_bytes_max:
            body = _held(message, self._whole(seen))
        else:
            body = self._copied(seen, Place(queue.text, date_of(came_ms)))
        if body.size is None:
            self._damaged.append(f"{queue.text} {message_id.text}")
        # None: its history is not known, as where no file of it is there.
        events = self._events.get((queue.text, message_id.text))
        self._parts.add(message, status.st_mtime_ns, came_ms, body, events)

    def _whole(self, seen: _Seen) -> bytes:
        if seen.content is not None:
            return seen.content
        content = self._files.read_file(seen.path, seen.status.st_size)
        _check_size(seen, len(content))
        return content

    def _copied(self, seen: _Seen, place: Place) -> Body:
        """A body that no row is to have, as a file of its own in staging."""
        head_bytes = seen.message.id.header_bytes
        name = self._parts.new_name(_BODY_SUFFIX)
        source = self._files.open_read(seen.path)
        try:
            # A block that cannot be read has its bytes in the file: nothing of it is lost.
            headers = headers_of(seen.message.id, self._files.read(source, head_bytes, 0))
            begin = 0 if headers is None else head_bytes
            digest = self._copy(source, begin, name, seen)
        finally:
            self._files.close(source)
        folder = f"{BODIES}/{place.folder}"
        size = seen.status.st_size - begin
        self._facts.append(Fact(BODY, name, folder, 0, size, size))
        path = f"{folder}/{name}"
        return (
            Body(None, None, None, (), path)
            if headers is None
            else Body(None, size, digest, headers, path)
        )

    def _copy(self, source: int, begin: int, name: str, seen: _Seen) -> str:
        """Its SHA-256. Durable on return: yes, but for the name."""
        digest, at = hashlib.sha256(), begin
        target = self._files.create(f"{self._task.staging}/{name}")
        try:
            while chunk := self._files.read(source, CHUNK_BYTES, at):
                self._files.write(target, chunk)
                digest.update(chunk)
                at += len(chunk)
            self._files.sync(target)
        finally:
            self._files.close(target)
        _check_size(seen, at)
        return digest.hexdigest()


def _held(message: RemovedName, content: bytes) -> Body:
    head_bytes = message.id.header_bytes
    headers = headers_of(message.id, content[:head_bytes])
    if headers is None:
        return Body(content, None, None, ())
    value = content[head_bytes:] if head_bytes else content
    return Body(value, len(value), hashlib.sha256(value).hexdigest(), headers)


def _check_size(seen: _Seen, size: int) -> None:
    if size != seen.status.st_size:
        # No program of ours changes a file: it is the storage that gave less.
        raise OSError(errno.EIO, "the file ended early", seen.path)
