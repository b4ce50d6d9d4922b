"""Followers of a queue: each gets the ids of all messages that become ready, and takes none.

Followers get this process's publishes and inotify's reports at once. Looks at the newest messages
find those in buckets, and those that inotify does not report. At most TAIL_IDS_MAX ids wait for a
follower; the oldest are dropped and counted.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

from mq.model.errors import MqError
from mq.model.limits import LOOK_INTERVAL_S
from mq.model.names import MessageId
from mq.model.selection import Selection

# Ids that wait for one follower.
TAIL_IDS_MAX: Final = 1000
# Ids of a queue that its followers got; a look adds only others.
TOLD_IDS_MAX: Final = 4096
# The newest messages that a look finds, and the pause between looks where inotify reports all.
LOOK_IDS_MAX: Final = 1000
HEARD_LOOK_S: Final = 5.0
# A message that another process published may get its place this much after its time.
LATE_MS: Final = 2000


class Tail:
    """One follower of a queue, with a selection or without. Use it on the event loop's thread."""

    def __init__(
        self,
        selection: Selection | None,
        on_news: Callable[[], None],
        on_error: Callable[[MqError], None],
    ) -> None:
        """`on_news` is called when ids wait for it, `on_error` when the queue has ended."""
        self.selection = selection
        self.failed = on_error
        self._on_news = on_news
        self._ids: deque[MessageId] = deque()
        self._dropped = 0

    def saw(self, ids: Iterable[MessageId]) -> None:
        for each in ids:
            if self.selection is None or self.selection.matches_name(each.text) is not False:
                self._ids.append(each)
        while len(self._ids) > TAIL_IDS_MAX:
            self._dropped += self._ids.popleft().items or 1
        if self._ids:
            self._on_news()

    def take(self, count: int) -> tuple[list[MessageId], int]:
        """The next ids, of `count` messages, which a pack at the end may exceed; and how many were
        dropped before them.
        """
        dropped, self._dropped = self._dropped, 0
        taken = []
        while self._ids and count > 0:
            taken.append(message_id := self._ids.popleft())
            count -= message_id.items or 1
        return taken, dropped


class Tails:
    """The followers of one queue in one process."""

    def __init__(self) -> None:
        self._members: dict[Tail, None] = {}
        self._told: OrderedDict[str, None] = OrderedDict()
        self._since_ms = 0
        self._looked_s = float("-inf")
        self._has_buckets = True
        self._is_looking = False

    def __bool__(self) -> bool:
        return bool(self._members)

    def add(self, tail: Tail, now_ms: int, there: Iterable[MessageId]) -> None:
        """Adds a follower; `there`: the newest messages so far."""
        if not self._members:
            self._since_ms, self._looked_s = now_ms - LATE_MS, float("-inf")
            self._knows(there)
        self._members[tail] = None

    def discard(self, tail: Tail) -> None:
        self._members.pop(tail, None)
        if not self._members:
            self._told.clear()

    def saw(self, ids: Iterable[MessageId]) -> None:
        if not self._members:
            return
        ids = tuple(each for each in ids if not self._was_told(each))
        self._knows(ids)
        for tail in list(self._members):
            tail.saw(ids)

    def _knows(self, ids: Iterable[MessageId]) -> None:
        for each in ids:
            self._told[each.text] = None
            self._told.move_to_end(each.text)
        while len(self._told) > TOLD_IDS_MAX:
            self._told.popitem(last=False)

    def _was_told(self, message_id: MessageId) -> bool:
        """Whether followers got an item with its pack, which was parted just now."""
        if not message_id.pack_size or message_id.text in self._told:
            return False
        self._told[message_id.text] = None
        return message_id.pack().text in self._told

    def passed(self, ids: Iterable[MessageId]) -> None:
        """These became ready and were taken before this process knew them."""
        if self._members:
            self.saw(each for each in ids if each.text not in self._told)

    def found(self, ids: Iterable[MessageId], has_buckets: bool) -> None:
        """A look found these messages, the newest ones."""
        self._is_looking, self._has_buckets = False, has_buckets
        young = [each for each in ids if each.published_ms >= self._since_ms]
        self.saw(each for each in young if each.text not in self._told)

    def begins_look(self, now_s: float, is_heard: bool) -> bool:
        """Whether a look is due; if so it begins now, and `found` or `failed_to_look` ends it."""
        every_s = LOOK_INTERVAL_S if self._has_buckets or not is_heard else HEARD_LOOK_S
        if not self._members or self._is_looking or now_s - self._looked_s < every_s / 2:
            return False
        self._is_looking, self._looked_s = True, now_s
        return True

    def failed_to_look(self) -> None:
        """A look failed; the next one is due as usual."""
        self._is_looking = False

    def failed(self, error: MqError) -> None:
        for tail in list(self._members):
            tail.failed(error)
