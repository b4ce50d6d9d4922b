"""Members of one root, by each kind of coordinator, and time for them."""

import contextlib
import errno
import itertools
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from pathlib import Path

from harness.clock import FakeClock
from harness.processes import eventually
from harness.zookeeper import SESSION_S, Way, ZooKeeper
from mq.coordination.coordinator import Coordinator, Pacing
from mq.coordination.opening import open_coordinator
from mq.coordination.zookeeper import ZooKeeperCoordinator
from mq.model.clock import SystemClock
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.opening import open_root, root_of

ASSIGN_S = 1.0
"""Between two deals by ZooKeeper; by files, a test's clock has it be the default's."""


class Bench(ABC):
    """Members of one root, what they say, and time that passes for those that are not away."""

    def __init__(self) -> None:
        self.queues: list[QueueName] = []
        self.members: dict[str, Coordinator] = {}
        self.away: set[str] = set()
        """Those that make no turns: stopped, or dead."""

    def join(self, *names: str) -> list[Coordinator]:
        """Members of these names, which have started."""
        made = [self._open(name) for name in names]
        for member in made:
            self.members[member.member] = member
            member.start()
        return made

    def leave(self, name: str) -> None:
        """The member stops as it should."""
        self.members.pop(name).stop()

    def turn(self) -> None:
        """A turn of each member that makes some; no queue is of two, whenever one looks."""
        for name, member in list(self.members.items()):
            if name not in self.away:
                member.run_once(self.queues)
                self.assert_at_most_one_each()

    def assert_at_most_one_each(self) -> None:
        for queue in self.queues:
            assert len(self.owners(queue)) <= 1, queue

    def owners(self, queue: QueueName) -> list[str]:
        """Who has it, also of those that are away."""
        return [name for name, member in self.members.items() if member.has(queue)]

    def shares(self) -> dict[str, list[str]]:
        """The queues that each member has."""
        return {
            name: [queue.text for queue in self.queues if member.has(queue)]
            for name, member in self.members.items()
        }

    def all_are_owned(self) -> bool:
        return all(len(self.owners(queue)) == 1 for queue in self.queues)

    def leader(self) -> str | None:
        """Who leads, where all that are not away say the same."""
        said = {m.view().leader for name, m in self.members.items() if name not in self.away}
        return said.pop() if len(said) == 1 else None

    def settle(self) -> None:
        """Waits until each queue is somebody's, and all say the same of who is there."""
        here = tuple(sorted(set(self.members) - self.away))
        self.until(
            lambda: (
                self.all_are_owned()
                and self.leader() in here
                and all(self.members[name].view().members == here for name in here)
            ),
            f"each queue's owner among {here}",
        )

    def stop_still(self, name: str) -> None:
        """The member does nothing, and knows nothing of it, until it wakes up."""
        self.away.add(name)

    def wake_up(self, name: str) -> None:
        """It goes on where it was."""
        self.away.discard(name)

    def end(self) -> None:
        for name in list(self.members):
            self.leave(name)

    @abstractmethod
    def until(self, condition: Callable[[], object], what: str) -> None:
        """Turns, until it is so."""

    @abstractmethod
    def cut_off(self, name: str) -> None:
        """The member reaches the others no more."""

    @abstractmethod
    def mend(self, name: str) -> None:
        """It does again."""

    @abstractmethod
    def kill(self, name: str) -> None:
        """The member does nothing any more, and says no farewell."""

    @abstractmethod
    def _open(self, name: str) -> Coordinator:
        pass


class CutFiles(Files):
    """One process's files, whose disk fails for as long as it is cut."""

    is_cut = False

    def __init__(self) -> None:
        super().__init__()
        self._kept: set[int] = set()

    def _check(self) -> None:
        if self.is_cut:
            raise OSError(errno.EIO, "cut")

    def open_kept(self, path: str) -> int:
        self._check()
        descriptor = super().open_kept(path)
        self._kept.add(descriptor)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._kept.discard(descriptor)
        super().close(descriptor)

    def die(self) -> None:
        """Gives back what is open, as the kernel does when a process dies."""
        while self._kept:
            self.close(next(iter(self._kept)))

    def open_read(self, path: str) -> int:
        self._check()
        return super().open_read(path)

    def stamp(self, descriptor: int, mtime_ns: int) -> None:
        self._check()
        super().stamp(descriptor, mtime_ns)

    def entries(self, folder: str) -> "Iterator[object]":  # type: ignore[override]
        self._check()
        return super().entries(folder)


class FileBench(Bench):
    """By files, and a clock of the test's."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.clock = FakeClock()
        self.pacing = Pacing()
        self.files: dict[str, Files] = {}
        """Each member's own; CutFiles unless a test says otherwise."""
        self.root: Root = open_root(str(path), Files(), self.clock)

    def pass_s(self, seconds: float) -> None:
        """Time passes, a look at a time."""
        for _ in range(round(seconds / self.pacing.look_s)):
            self.clock.advance(self.pacing.look_s)
            self.turn()

    def until(self, condition: Callable[[], object], what: str) -> None:
        self.turn()
        for _ in range(round(3 * self.pacing.assign_s / self.pacing.look_s)):
            if condition():
                return
            self.clock.advance(self.pacing.look_s)
            self.assert_at_most_one_each()
            self.turn()
        raise AssertionError(f"{what} never came true: {self.shares()}")

    def cut_off(self, name: str) -> None:
        self._cut_files(name).is_cut = True

    def mend(self, name: str) -> None:
        self._cut_files(name).is_cut = False

    def kill(self, name: str) -> None:
        del self.members[name]
        self._cut_files(name).die()

    def _cut_files(self, name: str) -> CutFiles:
        files = self.files[name]
        assert isinstance(files, CutFiles)
        return files

    def _open(self, name: str) -> Coordinator:
        files = self.files.setdefault(name, CutFiles())
        root = root_of(self.root.layout, files, self.clock, kind="mq-mover")
        return open_coordinator("file", root, name)


class ZooKeeperBench(Bench):
    """By a real ZooKeeper, each member by a way of its own, in real time."""

    def __init__(self, server: ZooKeeper, path: Path) -> None:
        super().__init__()
        self.server = server
        self.root = open_root(str(path), Files(), SystemClock())
        self.ways: dict[str, Way] = {}
        # Tests share the server, and leave what they made there.
        self.client = f"test-{uuid.uuid4().hex}"

    def until(self, condition: Callable[[], object], what: str) -> None:
        def turned() -> object:
            self.turn()
            return condition()

        try:
            eventually(turned, what)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.shares()}") from error

    def cut_off(self, name: str) -> None:
        self.ways[name].cut()

    def mend(self, name: str) -> None:
        self.ways[name].mend()

    def kill(self, name: str) -> None:
        # Nothing of it is heard from here on.
        self.cut_off(name)
        member = self.members.pop(name)
        with contextlib.suppress(Exception):
            member.stop()

    def end(self) -> None:
        super().end()
        for way in self.ways.values():
            way.close()

    def address(self, name: str) -> str:
        return (
            f"zookeeper://127.0.0.1:{self.ways[name].port}/tests"
            f"?client={self.client}&timeout={SESSION_S}"
        )

    def stop_still(self, name: str) -> None:
        # Of this process's threads none can be stopped; what they say and hear can.
        super().stop_still(name)
        self.ways[name].hang()

    def wake_up(self, name: str) -> None:
        super().wake_up(name)
        self.mend(name)

    def _open(self, name: str) -> ZooKeeperCoordinator:
        self.ways[name] = Way(self.server.port)
        made = open_coordinator(self.address(name), self.root, name, ASSIGN_S)
        assert isinstance(made, ZooKeeperCoordinator)
        return made


def queues_named(*names: str) -> list[QueueName]:
    return [QueueName.parse(name) for name in names]


def many_queues(count: int) -> list[QueueName]:
    """Queues, each with a sideline."""
    plain = [QueueName.parse(f"queue-{at}") for at in range(count)]
    return list(itertools.chain.from_iterable((each, each.sideline()) for each in plain))
