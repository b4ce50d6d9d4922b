"""Fetches a worker's messages, as many as it has room for, and reads its queues' settings."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from secrets import token_hex
from typing import Final

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, NotUsable, Refused, one_line
from mq.client.http_transport import shown_url
from mq.client.message import AsyncMessage
from mq.client.messages import POLLER_NAME_BYTES
from mq.client.options import Seams
from mq.client.queue import AsyncQueue
from mq.client.worker.leases import Leases
from mq.model.limits import VISIBILITY_S_DEFAULT

# How long a poll waits at the server; how long a worker that drains waits for one whose answer may
# be on its way; how soon a poll that failed is repeated.
WORKER_POLL_S: Final = 20.0
YOUNG_POLL_S: Final = 0.2
POLL_AGAIN_S: Final = 0.1
POLL_AGAIN_S_MAX: Final = 5.0
# How often a worker that follows the setting `consumers` reads it.
FOLLOW_EVERY_S: Final = 3.0
# How often a worker with patterns lists the queues.
FIND_EVERY_S: Final = 5.0

_log: Final = logging.getLogger("mq.worker")


@dataclass(frozen=True, slots=True)
class Polls:
    """The shared state of a worker's pollers. `wanted`: for how many messages of a queue there is
    room. `came`: gets a queue's messages, with their usual visibility in seconds. `url`: mq's, for
    logs.
    """

    wanted: Callable[[str], int]
    came: Callable[[str, Sequence[AsyncMessage], float], None]
    leases: Leases
    seams: Seams
    url: str
    visibility_s: float | None
    priority: int
    consumer: str = field(default_factory=lambda: token_hex(POLLER_NAME_BYTES))
    """The worker's name as a consumer: all its polls, on any connection, count as one."""


class Poller:
    """Fetches messages of a queue until it is stopped."""

    def __init__(self, queue: AsyncQueue, polls: Polls) -> None:
        self._queue = queue
        self._polls = polls
        self._usual_s = polls.visibility_s or VISIBILITY_S_DEFAULT
        self._room = asyncio.Event()
        self._asked_s: float | None = None
        self._failed = 0
        self._takes_packs: bool | None = None
        self._is_stopping = False

    def look_again(self) -> None:
        self._room.set()

    async def run(self) -> None:
        """Fetches again and again; waits while there is no room, and after errors. Raises final
        errors: Refused, NotUsable.
        """
        while not self._is_stopping:
            self._room.clear()
            count = self._polls.wanted(self._queue.name)
            if not count:
                await self._room.wait()
                continue
            try:
                await self._ask(count)
            except (Refused, NotUsable):
                raise
            except ClientError as error:
                await self._wait_after(error)

    async def stop(self, running: "asyncio.Task[None]") -> None:
        """Ends `run`. It waits for a fetch that has just begun, whose answer may bring messages.
        It cancels one that waits at mq, which notices the end of the connection and claims nothing.
        """
        self._is_stopping = True
        self._room.set()
        if self._asked_s is not None:
            young_s = self._asked_s + YOUNG_POLL_S - self._polls.seams.clock.steady_s()
            if young_s > 0:
                await asyncio.wait({running}, timeout=young_s)
        running.cancel()
        await asyncio.wait({running})

    async def _ask(self, count: int) -> None:
        polls = self._polls
        self._asked_s = polls.seams.clock.steady_s()
        try:
            # The first answer has mq's time, the queue's visibility, and whether mq knows packs.
            if self._takes_packs is None or not polls.leases.knows_time:
                await self._meet()
            messages = await self._queue.fetch_many(
                count,
                wait_s=WORKER_POLL_S,
                visibility_s=polls.visibility_s,
                priority=polls.priority,
                consumer=polls.consumer,
                packs=bool(self._takes_packs),
            )
        finally:
            self._asked_s = None
        if self._failed:
            _log.info(
                "the worker fetches from %s at %s again",
                *(self._queue.name, polls.url),
                extra={"fields": {"queue": self._queue.name, "url": polls.url}},
            )
            self._failed = 0
        if messages:
            polls.came(self._queue.name, messages, self._usual_s)

    async def _meet(self) -> None:
        found = await self._queue.describe()
        self._polls.leases.heard(found.as_of["totals"])
        if self._polls.visibility_s is None:
            self._usual_s = float(found.settings.get("visibility_s", self._usual_s))
        self._takes_packs = "pack_messages_max" in found.settings

    async def _wait_after(self, error: ClientError) -> None:
        pause_s = min(POLL_AGAIN_S * 2.0 ** min(self._failed, 16), POLL_AGAIN_S_MAX)
        self._failed += 1
        self._takes_packs = None  # It may be another mq from here on.
        level = logging.WARNING if self._failed == 1 else logging.DEBUG
        pause_s *= (1 + self._polls.seams.chance()) / 2
        facts = {"queue": self._queue.name, "url": self._polls.url, "error": one_line(error)}
        _log.log(
            *(level, "the worker cannot fetch from %s at %s: %s; retries in %.1f s"),
            *(*facts.values(), pause_s),
            extra={"fields": facts},
        )
        await self._polls.seams.sleep(pause_s)


async def follow(
    client: AsyncClient,
    queues: Callable[[], Iterable[str]],
    found: Callable[[Iterable[int]], None],
    seams: Seams,
) -> None:
    """Reads the setting `consumers` of all queues every few seconds; `found` gets the values. A
    setting that cannot be read keeps its last value.
    """
    known: dict[str, int] = {}

    async def look(queue: AsyncQueue) -> None:
        try:
            consumers = (await queue.settings()).values.get("consumers", 0)
        except ClientError as error:
            facts = {"queue": queue.name, "url": shown_url(client.url), "error": one_line(error)}
            _log.debug(
                "the worker cannot read the settings of %s at %s: %s; it keeps the last ones",
                *facts.values(),
                extra={"fields": facts},
            )
            return
        if isinstance(consumers, int):
            known[queue.name] = consumers

    while True:
        known = {name: known.get(name, 0) for name in queues()}
        await asyncio.gather(*(look(client.queue(name)) for name in known))
        found(known.values())
        await seams.sleep(FOLLOW_EVERY_S)


async def find(client: AsyncClient, found: Callable[[Sequence[str]], None], seams: Seams) -> None:
    """Lists mq's queues every few seconds; `found` gets their names. While mq cannot be asked, the
    queues stay as they are. Raises final errors: Refused, NotUsable.
    """
    has_failed = False
    while True:
        try:
            names = [each.name async for each in client.queues()]
        except (Refused, NotUsable):
            raise
        except ClientError as error:
            level = logging.DEBUG if has_failed else logging.WARNING
            facts = {"url": shown_url(client.url), "error": one_line(error)}
            _log.log(
                *(level, "the worker cannot list the queues at %s: %s; retries in %g s"),
                *(*facts.values(), FIND_EVERY_S),
                extra={"fields": facts},
            )
            has_failed = True
        else:
            has_failed = False
            found(names)
        await seams.sleep(FIND_EVERY_S)
