"""What comes to queues' folders by anybody's hand on this machine, as Linux tells it (inotify).

A hint, and never the only way: who hears nothing still looks. Nothing is told of what comes to a
bucket, of another machine's changes on a network mount, nor where there is no inotify.
"""

import contextlib
import logging
import os
from dataclasses import dataclass, field
from typing import Final

from inotify_simple import INotify, flags, parse_events

from mq.model.errors import BadName
from mq.model.limits import ARRIVALS_READ_BYTES, WATCHES_MAX
from mq.model.names import MessageId, QueueName
from mq.store.format.layout import Layout

_log = logging.getLogger("mq.arrivals")

# Plain numbers: an enumeration's members cost a call for each event.
_MOVED_TO: Final = int(flags.MOVED_TO)
_IS_FOLDER: Final = int(flags.ISDIR)
_OVERFLOW: Final = int(flags.Q_OVERFLOW)
_IS_OVER: Final = int(flags.IGNORED | flags.UNMOUNT | flags.DELETE_SELF | flags.MOVE_SELF)
_WATCHED: Final = int(
    flags.MOVED_TO | flags.CREATE | flags.DELETE_SELF | flags.MOVE_SELF
    | flags.ONLYDIR | flags.DONT_FOLLOW | flags.EXCL_UNLINK
)  # fmt: skip


@dataclass(slots=True)
class News:
    """What was heard since the last time.

    `arrived`: ids of messages that came to a watched queue's own folder, in their order.
    `changed`: queues to look into, since something else happened there; `gone` are those of them
    whose folder went, and which are watched no more. `missed`: more happened than was kept, so
    that every watched queue is to be looked into.
    """

    arrived: dict[QueueName, list[MessageId]] = field(default_factory=dict)
    changed: set[QueueName] = field(default_factory=set)
    gone: set[QueueName] = field(default_factory=set)
    missed: bool = False


class Arrivals:
    """Watches on the folders of queues, at most `watches_max`.

    `watch` and `unwatch` are for one thread at a time, since a path's look-up may block; the rest
    is for the event loop's, and blocks never. Whoever begins to watch a queue looks into it
    afterwards: what came before is not told.
    """

    def __init__(self, layout: Layout, watches_max: int = WATCHES_MAX) -> None:
        """Raises OSError where there is no inotify, or no more of it for this user."""
        self._layout = layout
        self._watches_max = watches_max
        self._inotify = INotify(nonblocking=True)
        self._watch_of: dict[QueueName, int] = {}
        self._queue_of: dict[int, QueueName] = {}
        self._was_refused = False

    def __len__(self) -> int:
        return len(self._watch_of)

    def fileno(self) -> int:
        """Readable when there is news."""
        return int(self._inotify.fileno())

    def watch(self, queue: QueueName) -> bool:
        """Hears of the queue from here on; False where it is not there, or where there are too
        many watches. Again for a queue that is watched: whether its folder is still the one.
        """
        known = self._watch_of.get(queue)
        if known is None and len(self._watch_of) >= self._watches_max:
            return False
        try:
            watch = int(self._inotify.add_watch(self._layout.queue(queue), _WATCHED))
        except OSError as error:
            self._refused(error)
            return False
        self._queue_of[watch] = queue
        self._watch_of[queue] = watch
        return True

    def unwatch(self, queue: QueueName) -> None:
        """Hears of the queue no more."""
        watch = self._watch_of.pop(queue, None)
        if watch is not None:
            self._drop(watch)

    def is_watched(self, queue: QueueName) -> bool:
        """Whether what comes to the queue's own folder is heard of."""
        return queue in self._watch_of

    def read(self) -> News:
        """What happened since, or the first ARRIVALS_READ_BYTES of it; empty where nothing did."""
        news = News()
        try:
            data = os.read(self._inotify.fileno(), ARRIVALS_READ_BYTES)
        except BlockingIOError:
            return news
        for watch, mask, _, name in parse_events(data):
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
        return news

    def close(self) -> None:
        """Gives all watches back. Nothing else is called from here on."""
        self._watch_of.clear()
        self._queue_of.clear()
        self._inotify.close()

    def _is_over(self, queue: QueueName, watch: int, news: News) -> None:
        """The folder was deleted, or moved to where its watch would go on telling of it."""
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
        """Said once: it is the machine's limit, and looking does as well, if later."""
        if not self._was_refused and not isinstance(error, FileNotFoundError | NotADirectoryError):
            self._was_refused = True
            _log.warning(
                "a queue's folder is not watched, but looked into now and then",
                extra={"fields": {"watched": len(self._watch_of), "error": repr(error)}},
            )


def open_arrivals(layout: Layout) -> Arrivals | None:
    """Arrivals where Linux has them for us, else None."""
    try:
        return Arrivals(layout)
    except (OSError, AttributeError) as error:  # No such function in this C library.
        _log.warning(
            "queues' folders are not watched, but looked into now and then",
            extra={"fields": {"error": repr(error)}},
        )
        return None
