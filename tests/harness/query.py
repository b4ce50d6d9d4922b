"""What Spark does with a stream's source, without Spark: logs, batches, a sink, and deaths."""

from dataclasses import dataclass, field
from pathlib import Path

from harness.clock import FakeClock
from harness.faults import CrashingFiles, Died
from harness.leases import LEASE_S
from mq.model.errors import LeaseLost
from mq.spark.leasing import renew_open
from mq.spark.listing import is_leased, lease_blocks
from mq.spark.options import StreamOptions
from mq.spark.streaming import LeaseStream
from mq.store.disk.flush import NoFlusher
from mq.store.opening import attach_root

DEATHS = ("after latestOffset", "after the offset log", "after the sink", "after the commit log")


@dataclass
class Checkpoint:
    """The offset log's ends, how many batches are committed, and the sink that goes with them:
    what each batch brought, the same number overwriting.
    """

    ends: list[int] = field(default_factory=list)
    committed: int = 0
    sink: dict[int, set[str]] = field(default_factory=dict)

    @property
    def committed_seq(self) -> int | None:
        return self.ends[self.committed - 1] if self.committed else None


class Query:
    """A query of one consumer; a run of it lives until `die`."""

    def __init__(self, top: Path, clock: FakeClock, limit: int = 3, **options: object) -> None:
        self.top = top
        self.clock = clock
        given = {"path": str(top), "subscribe": "q", "consumer": "c", "leaseSeconds": int(LEASE_S)}
        given |= {"maxMessagesPerTrigger": limit} | options
        self.options = StreamOptions.parse({name: str(value) for name, value in given.items()})
        self.checkpoint = Checkpoint()
        self.read: dict[tuple[int, int], list[set[str]]] = {}
        """What each reading of the leases from one to another has brought, for this checkpoint."""
        self.stream: LeaseStream | None = None
        self.files = CrashingFiles()
        self.waited_s = 0.0

    def start(self, changes_left: int | None = None) -> LeaseStream:
        """A run begins, if none is there. It dies after so many changes of the disk."""
        if self.stream is None:
            self.files = CrashingFiles()
            root = attach_root(str(self.top), self.files, self.clock)
            self.stream = LeaseStream(root, self.options, NoFlusher(), self._wait)
        self.files.changes_left = changes_left
        return self.stream

    def _wait(self, seconds: float) -> None:
        self.waited_s += seconds

    def die(self) -> None:
        """As by kill -9."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None

    def forget(self) -> None:
        """The checkpoint is lost, and what is known of its batches."""
        self.die()
        self.checkpoint = Checkpoint()
        self.read = {}

    def renew(self) -> None:
        if self.stream is not None:
            renew_open(self.stream.root, self.stream.consumer, self.options.lease_s)

    def trigger(
        self, changes_left: int | None = None, death: str = "", limit: int | None = 3
    ) -> bool:
        """One micro-batch, as far as it comes; whether there was one to the end."""
        try:
            return self._trigger(changes_left, death, limit)
        except Died:
            self.die()
            return False
        except Exception:
            if not self.files.is_dead:
                raise
            self.die()
            return False

    def _trigger(self, changes_left: int | None, death: str, limit: int | None) -> bool:
        stream, log = self.start(changes_left), self.checkpoint
        start = log.ends[-1] if log.ends else stream.initial_seq()
        if len(log.ends) > log.committed:  # Of a run that died: first that batch, again.
            start = log.ends[-2] if len(log.ends) > 1 else stream.initial_seq()
            end = log.ends[-1]
        else:
            end = stream.latest_seq(start, limit)
            self._perhaps(death, "after latestOffset")
            if end == start:
                return False
            log.ends.append(end)
            self._perhaps(death, "after the offset log")
            if log.committed:
                stream.commit(start)
        log.sink[log.committed] = self._content(stream, start, end)
        self._perhaps(death, "after the sink")
        log.committed += 1
        self._perhaps(death, "after the commit log")
        return True

    def _content(self, stream: LeaseStream, start: int, end: int) -> set[str]:
        found: set[str] = set()
        for lease in stream.batch(start, end):
            blocks = lease_blocks(stream.root, lease)
            found |= {name.rpartition(":")[2] for block in blocks for name in block.names}
            if not is_leased(stream.root, lease):
                raise LeaseLost(lease.text)
        self.read.setdefault((start, end), []).append(found)
        return found

    def _perhaps(self, death: str, where: str) -> None:
        if death == where:
            self.files.is_dead = True
            raise Died
