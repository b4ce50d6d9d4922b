"""What requests do to items of packs: to a whole pack at once where they concern all its items
alike, else to each item, once the pack is parted.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, TypeVar

from mq.model.errors import Busy, MessageNotFound, MqError
from mq.model.lifecycle import State
from mq.model.log import logger
from mq.model.message import Delivery, Stamp
from mq.model.names import MessageId, QueueName
from mq.model.packs import is_whole
from mq.store.core.moves import message_status
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.disk.steps import Steps
from mq.store.format.layout import Place
from mq.store.operations.fetch import is_served_no_more, sources_of
from mq.store.packs.fetching import pack_of
from mq.store.packs.items import find_item, units
from mq.store.packs.parting import part
from mq.store.packs.rolling import roll_ready_on

T = TypeVar("T")

# Packs that are parted at a time: each is in memory, and has its files open.
PARTINGS_MAX: Final = 3
# Looks at a pack that others part, or move, at the same time.
TRIES_MAX: Final = 3
# Tries of a request at a pack that another process has locked, and the time between two.
BUSY_TRIES: Final = 20
BUSY_WAIT_S: Final = 0.05

_log = logger("mq.queue")

Ends: TypeAlias = "dict[MessageId, T | BaseException]"
"""The result of each message, or its error."""


class Packs:
    """The packs of a broker. Use it on the event loop's thread."""

    def __init__(
        self,
        root: Root,
        committer: Committer,
        added: Callable[[QueueName, Sequence[MessageId]], None],
    ) -> None:
        """`added` gets items that are ready now."""
        self._root = root
        self._committer = committer
        self._added = added
        self._partings = asyncio.Semaphore(PARTINGS_MAX)
        self.waits: Callable[[float], Awaitable[None]] = asyncio.sleep
        self._going: dict[tuple[QueueName, str], asyncio.Future[None]] = {}
        """What concerns a pack as a whole, by the pack."""

    async def part(self, name: QueueName, pack: MessageId) -> bool:
        """Parts a ready pack. False: it is not ready, or was purged or has expired. Raises as
        `parting.part`. Durable on return: yes.
        """
        async with self._alone(name, pack), self._partings:
            items = await self._committer.commit(_part_ready(self._root, name, pack))
        if items is not None:
            self._added(name, items)
        return items is not None

    async def rolls_on(self, name: QueueName) -> bool:
        """Whether messages of ready packs come at once, since another process parts them: those of
        one that is parted are there on return. Raises Unavailable.
        """
        try:
            return await self._committer.call(roll_ready_on, self._root, name)
        except Busy:
            return True

    async def settle(
        self,
        name: QueueName,
        ids: Sequence[MessageId],
        act: Callable[[MessageId], Awaitable[T]],
        extends_s: float | None = None,
        is_each: bool = False,
    ) -> "Ends[T]":
        """Acts on items of one pack: on the pack, if these are all its items, else on each.
        Returns the result of each. `extends_s`: the action makes them due in this many seconds;
        to a later time it is for the whole pack, whose holder is alive. `is_each`: never on the
        pack.
        Durable on return: each without an error.
        """
        pack, asked = ids[0].pack(), _Asked(ids, extends_s, is_each)
        for _ in range(TRIES_MAX):
            try:
                async with self._alone(name, pack):
                    if await self._is_whole(name, asked):
                        return dict.fromkeys(ids, await asyncio.shield(act(pack)))
            except MessageNotFound:
                continue  # Others may have parted it meanwhile.
            except Exception as error:
                return dict.fromkeys(ids, error)
            acting = asyncio.gather(*map(act, ids), return_exceptions=True)
            ends = dict(zip(ids, await asyncio.shield(acting), strict=True))
            still = [each for each in asked.ready if isinstance(ends.get(each), BaseException)]
            if still:
                self._added(name, still)
            return ends
        return {each: MessageNotFound(each.text) for each in ids}

    async def held(self, name: QueueName, deliveries: Sequence[Delivery]) -> list[Delivery]:
        """The deliveries that end with these: of a whole pack for those of all its items, else of
        each, once the pack is parted. Those of a pack that cannot be parted now are left out.
        """
        found = [each for each in deliveries if not each.id.pack_size]
        of_packs: dict[str, list[Delivery]] = {}
        for each in deliveries:
            if each.id.pack_size:
                of_packs.setdefault(each.id.pack().text, []).append(each)
        for items in of_packs.values():
            ids = [each.id for each in items]
            try:
                async with self._alone(name, ids[0].pack()):
                    whole = await self._is_whole(name, _Asked(ids))
            except MqError as error:
                fields = {"queue": name.text, "error": repr(error)}
                _log.warning(
                    "could not part a pack; its messages become ready when they are due",
                    extra={"fields": fields},
                )
            else:
                found += [pack_of(items[0])] if whole else items
        return found

    async def _is_whole(self, name: QueueName, asked: "_Asked") -> bool:
        """Whether the pack is there and an action on these items is one on the pack. If not, the
        pack is parted, and those of its items that are not asked for are added.
        """
        root, commit, ids = self._root, self._committer.commit, asked.ids
        if asked.is_each and is_whole(ids):
            ids = ids[1:]
        takes_all = False
        if asked.extends_s is not None and not is_whole(ids):
            takes_all = await self._committer.call(_is_later, root, name, ids[0], asked.extends_s)
        for tries_left in reversed(range(BUSY_TRIES)):
            try:
                if takes_all or is_whole(ids):
                    found = await commit(units(root, name, ids, some_take_all=takes_all))
                else:
                    async with self._partings:
                        found = await commit(units(root, name, ids, ready=asked.ready))
                break
            except Busy:  # Another process parts it, or is about to deliver it.
                if not tries_left:
                    raise
            await self.waits(BUSY_WAIT_S)
        if others := [each for each in asked.ready if each not in asked.ids]:
            self._added(name, others)
        return bool(found[0].items)

    @contextlib.asynccontextmanager
    async def _alone(self, name: QueueName, pack: MessageId) -> AsyncIterator[None]:
        """Nothing else of this process concerns the pack as a whole meanwhile."""
        key = name, pack.text
        while (going := self._going.get(key)) is not None:
            await asyncio.wait((going,))
        self._going[key] = asyncio.get_running_loop().create_future()
        try:
            yield
        finally:
            self._going.pop(key).set_result(None)


@dataclass(frozen=True, slots=True)
class _Asked:
    """A request for items of a pack, see `Packs.settle`; `ready`: those that became ready since
    the pack was parted for that.
    """

    ids: Sequence[MessageId]
    extends_s: float | None = None
    is_each: bool = False
    ready: list[MessageId] = field(default_factory=list)


def _part_ready(root: Root, queue: QueueName, pack: MessageId) -> Steps[list[MessageId] | None]:
    if is_served_no_more(root, queue, pack):
        return None
    for bucket in sources_of(root, queue, pack):
        items = yield from part(root, Place(State.READY, queue, pack, bucket))
        if items is not None:
            return items
    return None


def _is_later(root: Root, queue: QueueName, item: MessageId, due_in_s: float) -> bool:
    """Whether the item is in flight in its pack until an earlier time than `due_in_s` seconds
    from now.
    """
    place = find_item(root, queue, item)
    if place is None or not place.id.items or place.state is not State.DELAYED:
        return False
    status = message_status(root, place.path(root.layout))
    if status is None:
        return False
    stamp = Stamp.from_mtime_ns(status.st_mtime_ns)
    return stamp.receives > 0 and stamp.due_ms <= root.now_ms() + round(due_in_s * 1000)
