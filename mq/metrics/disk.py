"""A scrape's probes of the disk: whether it takes writes, free space, the queues' counts, the
members. All processes of a root give the same answers.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.metrics_core import Metric

from mq import __version__
from mq.broker.readiness import Readiness, ReadinessProbe
from mq.metrics.families import counter, gauge, one
from mq.metrics.survey import FIGURES, Row, Survey, Surveyed
from mq.model.errors import Unavailable
from mq.model.members import Member, leader_of
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.disk.space import Room
from mq.store.members.files import read_members

_SAYS = {
    "ready": "Messages that may be fetched.",
    "delayed": "Messages that are not due yet and were never fetched.",
    "in_flight": "Messages that were fetched and are not due again yet.",
    "leased": "Messages in the leases of Spark queries.",
    "overdue": "Those of delayed and in_flight that a mover should have brought back.",
    "removed": "Messages in remove/, which the reaper has not unlinked.",
    "sidelined": "Messages that are ready in the queue's sideline.",
    "foreign": "Names in the queue's folder that are no message's.",
}


@dataclass(frozen=True, slots=True)
class Looked:
    """The result of a probe; `readiness` None: nothing can be stored."""

    readiness: Readiness | None
    room: Room


@dataclass(frozen=True, slots=True)
class Counted:
    """The queues' counts and the members."""

    surveyed: Surveyed
    movers: int
    is_led: bool


class Disk:
    """One process's probes of its root."""

    def __init__(
        self, root: Root, committer: Committer, probe: ReadinessProbe, survey: Survey
    ) -> None:
        self._root = root
        self._committer = committer
        self._probe = probe
        self._survey = survey

    async def look(self) -> Looked:
        """Probes whether the disk takes writes, and its free space. Raises Unavailable."""
        try:
            readiness = await self._probe.check()
        except Unavailable:
            readiness = None
        return Looked(readiness, await self._committer.call(self._root.space.room))

    async def count(self) -> Counted:
        """Counts some of the queues, in time proportional to their size. One call at a time. Raises
        Unavailable.
        """
        return await self._committer.call(self._count)

    def _count(self) -> Counted:
        root = self._root
        surveyed, members, now_ms = self._survey.look(), read_members(root), root.now_ms()
        is_led = leader_of(members, now_ms) is not None
        return Counted(surveyed, _there(members, now_ms), is_led)


def _there(members: Iterable[Member], now_ms: int) -> int:
    return sum(not each.is_gone(now_ms) for each in members)


def families_of(looked: Looked | None, counted: Counted | None) -> Iterator[Metric]:
    """`looked` None: the disk did not answer in time; `counted` None: nothing was counted yet."""
    readiness = None if looked is None else looked.readiness
    yield one("mq_ready", "Whether messages can be stored now: /-/readyz.", readiness is not None)
    yield one("mq_disk_answers", "Whether the last request to the disk came back.", bool(looked))
    if counted is not None:
        yield from _queues(counted.surveyed)
        yield one(
            "mq_movers", "Processes that share the upkeep and reported lately.", counted.movers
        )
        yield one("mq_upkeep_is_led", "Whether one of them leads.", counted.is_led)
    if looked is None:
        return
    if readiness is not None:
        facts = {
            "version": __version__,
            "durability": readiness.durability,
            "file_system": readiness.file_system,
            "commit": readiness.commit,
        }
        yield gauge("mq_info", "What this mq is.", tuple(facts), [(tuple(facts.values()), 1)])
    yield from _room(looked.room)


def _room(room: Room) -> Iterator[Metric]:
    yield one("mq_file_system_bytes", "The size of the root's file system.", room.total_bytes)
    yield one("mq_file_system_free_bytes", "Its free bytes.", room.free_bytes)
    yield one(
        "mq_reserve_bytes", "What publishing leaves free, for fetch and delete.", room.reserve_bytes
    )
    # A file system without a fixed number of inodes reports none.
    if room.total_inodes:
        yield one("mq_file_system_inodes", "Inodes of the root's file system.", room.total_inodes)
        yield one("mq_file_system_free_inodes", "Those that are free.", room.free_inodes)
        yield one("mq_reserve_inodes", "Inodes that publishing leaves free.", room.reserve_inodes)
    yield one("mq_below_reserve", "Whether publishing is refused for that.", room.is_low)


def _queues(surveyed: Surveyed) -> Iterator[Metric]:
    yield one("mq_queues", "Queues that there are, sidelines too.", surveyed.queues)
    yield one("mq_queues_uncounted", "Those not counted yet.", surveyed.uncounted)
    yield one(
        "mq_queue_counts_age_seconds",
        "How old the oldest of the counts of queues is.",
        surveyed.age_s,
    )
    rows = surveyed.rows
    for figure in FIGURES:
        found = [((row.queue,), row.figures[figure]) for row in rows]
        yield gauge(f"mq_queue_{figure}", _SAYS[figure], ("queue",), found)
    yield counter(
        "mq_queue_messages",
        "Operations on the queue's messages since it was made, by all processes.",
        ("queue", "event"),
        [((row.queue, event), count) for row in rows for event, count in row.totals.items()],
    )
    yield _ages(
        "mq_queue_oldest_ready_seconds",
        "How long ago the oldest ready message was published; 0: there is none.",
        [(row, row.oldest_ready_s) for row in rows],
    )
    yield _ages(
        "mq_queue_oldest_overdue_seconds",
        "How long ago the message was due that a mover has left longest; 0: there is none.",
        [(row, row.oldest_overdue_s) for row in rows],
    )


def _ages(name: str, says: str, rows: list[tuple[Row, float]]) -> Metric:
    return gauge(name, says, ("queue",), [((row.queue,), age_s) for row, age_s in rows])
