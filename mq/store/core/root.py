"""An opened root: the objects that every operation needs, and the hooks for features."""

import contextlib
import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from mq.model.clock import Clock, ClockSteps
from mq.model.errors import Busy
from mq.model.history import Event, Told
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import MessageId, QueueName
from mq.store.core.facts import Facts
from mq.store.core.places import Places
from mq.store.core.presence import Presence
from mq.store.core.room import Room
from mq.store.core.totals import Tally
from mq.store.disk.files import Files, is_gone
from mq.store.disk.space import Space
from mq.store.disk.steps import Steps
from mq.store.format.layout import KEYS_FOLDERS, Layout, LinkPlace, is_unfinished
from mq.store.format.walk import entries_if_there

# Looks into a folder whose files go one by one, while others may add some.
MOVES_MAX: Final = 10


class History(Protocol):
    """Records what operations did to messages, once that is on stable media. Never raises because
    of the storage: lines that cannot be written are counted.
    """

    dropped_total: int
    """How many lines could not be written so far."""

    def is_on(self, queue: QueueName) -> bool:
        """Whether the queue has a history, by its settings of half a second ago at most. May block
        for a look at them.
        """

    def record(
        self,
        queue: QueueName,
        event: Event,
        message_id: MessageId,
        receives: int | None = None,
        due_ms: int | None = None,
        lease: str = "",
        reason: str = "",
        block: bytes = b"",
    ) -> None:
        """Counts the event, and writes a line where the queue has a history. A removal is counted
        by the code that knows its reason. `block`: the header block of a publish, for its tags.
        Durable on return: no.
        """

    def record_many(
        self, queue: QueueName, event: Event, messages: Iterable[Told], lease: str = ""
    ) -> None:
        """Writes lines for many messages where the queue has a history; blocks until they are
        written. Counts nothing. Durable on return: no.
        """

    def begin(self) -> None:
        """From here on a thread writes the lines of `record`; it starts with the first line."""

    def write_out(self) -> None:
        """Writes the held lines, unless another thread does for a while; blocking."""

    def close_idle(self) -> None:
        """Closes files without a recent line."""

    def end(self) -> None:
        """Writes the held lines, for a while at most, and closes all files; blocking."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """The places where features take part in operations on queues. `mq.store.opening`
    fills them.
    """

    forget: Callable[["Root", QueueName], Steps[None]]
    """A queue is deleted, or about to be made: the files of the old one go. Raises Busy, OSError.
    """
    sweep: Callable[["Root"], Steps[None]]
    """Under the queues' lock: what a crash has left of deleted queues goes."""
    retire: Callable[["Root", frozenset[QueueName]], int]
    """Moves to remove/ the committed messages of these deleted queues that are in no state yet; how
    many. Durable on return: no.
    """
    is_more_to_come: Callable[["Root"], bool]
    """Whether messages are committed that are in no state yet. Raises OSError."""
    is_firing_over: Callable[["Root", QueueName, LinkPlace], bool]
    """Whether what a firing's link is of will not fire again. Raises OSError."""


@dataclass(frozen=True, slots=True)
class Root:
    """An opened root's objects and paths, which every operation gets."""

    layout: Layout
    files: Files
    clock: Clock
    space: Space
    places: Places
    facts: Facts
    history: History
    totals: Tally
    room: Room
    steps: ClockSteps
    over_network: bool
    """Whether other machines may change it, and this one's cache may then be stale."""
    presence: Presence
    hooks: Hooks

    def now_ms(self) -> int:
        """Wall time as the root's file system tells it, milliseconds since the epoch."""
        return self.clock.now_ms()

    def aged_ms(self, seconds: float) -> int:
        """The same, for final decisions at an age of `seconds`: see ClockSteps."""
        return self.steps.aged_ms(seconds)

    def has_aged(self, since_ms: int, seconds: float) -> bool:
        """Whether `seconds` have passed since a time, in milliseconds since the epoch; for
        final decisions.
        """
        return self.steps.aged_ms(seconds) - since_ms >= seconds * 1000


def probe_write(root: Root) -> None:
    """Writes, fsyncs and removes a file, and fsyncs its folder: can the root persist now?

    Raises OSError when it cannot, or when one of its folders is gone; RootAway.
    """
    root.presence.check()
    for folder in root.layout.folders():
        if root.files.status(folder) is None:
            raise FileNotFoundError(errno.ENOENT, "the folder is gone", folder)
    path = root.layout.probe(State.NEW)
    descriptor = root.files.open_kept(path)
    try:
        root.files.write(descriptor, b"probe\n")
        root.files.sync(descriptor)
    finally:
        root.files.close(descriptor)
    root.files.sync_folder(root.layout.folder(State.NEW))
    unlink_if_there(root.files, path)


def unlink_if_there(files: Files, path: str) -> None:
    """Unlinks the name; a missing name is no error."""
    try:
        files.unlink(path)
    except FileNotFoundError:
        return


def rmdir_if_empty(files: Files, path: str) -> bool:
    """Removes a folder; False when it is not empty. A missing folder is no error. Raises OSError.
    Durable on return: no.
    """
    try:
        files.rmdir(path)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        if not is_gone(error):
            raise
    return True


def sweep_unfinished(
    root: Root,
    folder: str,
    is_one: Callable[[str], bool] = is_unfinished,
    kept_s: float | None = FORGOTTEN_AFTER_S,
) -> int:
    """Unlinks files that processes were writing when they died: those in the folder whose names
    satisfy `is_one`. Returns how many. `kept_s`: a file stays for this long after its ctime; None:
    no other process can be writing there. Raises OSError. Durable on return: no.
    """
    swept = 0
    for entry in entries_if_there(root.files, folder):
        if not is_one(entry.name):
            continue
        if kept_s is not None:
            status = root.files.status(entry.path)
            if status is None or not root.has_aged(status.st_ctime_ns // 1_000_000, kept_s):
                continue
        unlink_if_there(root.files, entry.path)
        swept += 1
    return swept


def rename_once(files: Files, source: str, target: str) -> None:
    """Renames to a name that no other process uses. Raises OSError as rename does."""
    try:
        files.rename(source, target)
    except OSError as error:
        # NFS may have done it and lost the answer.
        if not is_gone(error) or files.status(target) is None:
            raise


def rename_folder(files: Files, source: str, target: str) -> None:
    """Renames a folder to a name that no other process uses. Raises OSError as rename does; Busy.

    A lower layer of overlayfs, as a container's image is one, has no rename of folders (EXDEV): the
    files then go one by one to a new folder, and a crash may leave some in each. Durable on return:
    only what went so.
    """
    try:
        rename_once(files, source, target)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        _move_files(files, source, target)


def _move_files(files: Files, source: str, target: str) -> None:
    with contextlib.suppress(FileExistsError):
        files.mkdir(target)
    for _ in range(MOVES_MAX):
        # Messages before their links: a living message keeps its key.
        for entry in sorted(files.entries(source), key=lambda each: each.name in KEYS_FOLDERS):
            with contextlib.suppress(FileNotFoundError):
                if entry.is_dir(follow_symlinks=False):
                    _move_files(files, entry.path, f"{target}/{entry.name}")
                else:
                    rename_once(files, entry.path, f"{target}/{entry.name}")
        files.sync_folder(target)
        if rmdir_if_empty(files, source):
            return
    raise Busy("messages keep coming to a folder that is to go")
