"""inotify's reports of renames into queues' folders, by any process of this machine.

A hint: scans run in addition. Linux reports nothing about a bucket, another machine's changes on a
network mount, or a system without inotify.
"""

import contextlib
import os
from dataclasses import dataclass, field
from typing import Final

from inotify_simple import INotify, flags, parse_events

from mq.model.errors import BadName
from mq.model.limits import KIB
from mq.model.log import logger
from mq.model.names import MessageId, QueueName
from mq.store.format.layout import Layout

# Folders that inotify watches, and the bytes of its events that are read at once.
WATCHES_MAX: Final = 16_384
ARRIVALS_READ_BYTES: Final = 64 * KIB

_log = logger("mq.arrivals")

# Plain numbers: an enumeration's members cost a call for each event.
_MOVED_TO: Final = int(flags.MOVED_TO)
_MOVED_FROM: Final = int(flags.MOVED_FROM)
_IS_FOLDER: Final = int(flags.ISDIR)
_OVERFLOW: Final = int(flags.Q_OVERFLOW)
_IS_OVER: Final = int(flags.IGNORED | flags.UNMOUNT | flags.DELETE_SELF | flags.MOVE_SELF)
_WATCHED: Final = int(
    flags.MOVED_TO | flags.CREATE | flags.DELETE_SELF | flags.MOVE_SELF
    | flags.ONLYDIR | flags.DONT_FOLLOW | flags.EXCL_UNLINK
)  # fmt: skip


@dataclass(slots=True)
class News:
    """The events since the last read.

    `arrived`: ids of messages that came to a watched queue's own folder, in order. `left`: names
    that went from there, if departures are reported; a message that came back is `arrived`, one
    that came and went is only `passed`. `changed`: queues to scan, since something else happened
    there; `gone`: those of them whose folder is gone, which are no longer watched. `missed`: events
    were lost, so that all watched queues must be scanned. `events`: their number.
    """

    arrived: dict[QueueName, list[MessageId]] = field(default_factory=dict)
    left: dict[QueueName, list[str]] = field(default_factory=dict)
    passed: dict[QueueName, list[MessageId]] = field(default_factory=dict)
    changed: set[QueueName] = field(default_factory=set)
    gone: set[QueueName] = field(default_factory=set)
    missed: bool = False
    events: int = field(default=0, compare=False)


class Arrivals:
    """Watches on the folders of queues, at most `watches_max`.

    Call `watch` and `unwatch` from one thread at a time, since a path's look-up may block. The
    other methods are for the event loop's thread, and never block. After `watch`, scan the queue:
    earlier arrivals are not reported.
    """

    def __init__(
        self, layout: Layout, watches_max: int = WATCHES_MAX, has_departures: bool = False
    ) -> None:
        """`has_departures`: also what goes from a queue's own folder is reported. Raises OSError
        where there is no inotify, or no more of it for this user.
        """
        self._layout = layout
        self._watched = _WATCHED | (_MOVED_FROM if has_departures else 0)
        self._watches_max = watches_max
        self._inotify = INotify(nonblocking=True)
        self._watch_of: dict[QueueName, int] = {}
        self._queue_of: dict[int, QueueName] = {}
        self._was_refused = False

    def __len__(self) -> int:
        return len(self._watch_of)

    def fileno(self) -> int:
        return int(self._inotify.fileno())

    def watch(self, queue: QueueName) -> bool:
        """Watches the queue from here on. False where it does not exist, or there are too many
        watches. For a watched queue: whether its folder is still the same.
        """
        known = self._watch_of.get(queue)
        if known is None and len(self._watch_of) >= self._watches_max:
            return False
        try:
            watch = int(self._inotify.add_watch(self._layout.queue(queue), self._watched))
        except OSError as error:
            self._refused(error)
            return False
        self._queue_of[watch] = queue
        self._watch_of[queue] = watch
        return True

    def unwatch(self, queue: QueueName) -> None:
        watch = self._watch_of.pop(queue, None)
        if watch is not None:
            self._drop(watch)

    def is_watched(self, queue: QueueName) -> bool:
        """Whether arrivals in the queue's own folder are reported."""
        return queue in self._watch_of

    def read(self) -> News:
        """The events since the last call, up to ARRIVALS_READ_BYTES of them."""
        news = News()
        try:
            data = os.read(self._inotify.fileno(), ARRIVALS_READ_BYTES)
        except BlockingIOError:
            return news
        for watch, mask, _, name in parse_events(data):
            news.events += 1
            queue = self._queue_of.get(watch)
            if mask & _OVERFLOW:
                news.missed = True
            elif queue is None:
                continue
            elif mask & _IS_OVER:
                self._is_over(queue, watch, news)
            elif mask & _IS_FOLDER:
                news.changed.add(queue)
            elif mask & _MOVED_TO:
                with contextlib.suppress(BadName):  # A foreign name, or a dotfile.
                    message_id = MessageId.parse(name)
                    news.arrived.setdefault(queue, []).append(message_id)
            elif mask & _MOVED_FROM:
                self._left(queue, name, news)
        return news

    def close(self) -> None:
        """Removes all watches. Call nothing afterwards."""
        self._watch_of.clear()
        self._queue_of.clear()
        self._inotify.close()

    def _left(self, queue: QueueName, name: str, news: News) -> None:
        """A message that came and went is not an arrival."""
        arrived = news.arrived.get(queue)
        if arrived and (passed := [each for each in arrived if each.text == name]):
            news.arrived[queue] = [each for each in arrived if each.text != name]
            news.passed.setdefault(queue, []).extend(passed[:1])
        news.left.setdefault(queue, []).append(name)

    def _is_over(self, queue: QueueName, watch: int, news: News) -> None:
        """The folder was deleted, or moved to a place from which its watch would still report."""
        news.changed.add(queue)
        if self._watch_of.get(queue) == watch:
            del self._watch_of[queue]
            news.gone.add(queue)
        self._drop(watch)

    def _drop(self, watch: int) -> None:
        if self._queue_of.pop(watch, None) is None:
            return
        try:
            self._inotify.rm_watch(watch)
        except OSError:
            return  # It went with its folder.

    def _refused(self, error: OSError) -> None:
        """Logs it once: the limit is the machine's, and scans find the same messages later."""
        if not self._was_refused and not isinstance(error, FileNotFoundError | NotADirectoryError):
            self._was_refused = True
            _log.warning(
                "inotify cannot watch a queue's folder; mq scans it now and then",
                extra={"fields": {"watched": len(self._watch_of), "error": repr(error)}},
            )


def open_arrivals(layout: Layout, has_departures: bool = False) -> Arrivals | None:
    """Arrivals where Linux has them for us, else None."""
    try:
        return Arrivals(layout, has_departures=has_departures)
    except (OSError, AttributeError) as error:  # No such function in this C library.
        _log.warning(
            "inotify is not available; mq scans queues' folders now and then",
            extra={"fields": {"error": repr(error)}},
        )
        return None
