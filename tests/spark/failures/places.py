"""A root with its daemons, a queue in use over HTTP, and what Spark does to it beside that."""

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from harness.audits import assert_audits_clean
from harness.processes import Process, Processes, eventually
from spark.failures.accounts import Account
from spark.failures.drivers import Driver
from spark.failures.traffic import Traffic

QUEUE = "orders"


@dataclass
class Place:
    """One root; `folder` is for what jobs write and remember outside it."""

    root: Path
    folder: Path
    processes: Processes
    daemons: dict[str, Process]
    traffic: Traffic
    queues: list[str] = field(default_factory=lambda: [QUEUE])

    @property
    def account(self) -> Account:
        """Of all queues together: what a stream takes from one to another is delivered there."""
        return self.traffic.account

    @property
    def options(self) -> dict[str, str]:
        """Which queue of which root, for a stream of the consumer "spark"."""
        return {"path": str(self.root), "subscribe": QUEUE, "consumer": "spark"}

    @property
    def out(self) -> str:
        return str(self.folder / "out")

    @property
    def checkpoint(self) -> str:
        return str(self.folder / "checkpoint")

    def publish(self, count: int) -> None:
        """Numbers from 0 on, over HTTP."""
        connection = self.traffic.connection()
        for number in range(count):
            self.traffic.publish(connection, number)
        connection.close()

    def make_queue(self, queue: str) -> None:
        """Another one, without traffic of its own."""
        self.traffic.make_queue(queue)
        self.queues.append(queue)

    def restart_mover(self) -> None:
        assert self.daemons["mover"].terminate() == 0
        self.daemons["mover"] = self.processes.mover("--root", str(self.root))

    def journals(self) -> list[Path]:
        """Publishes that are committed, and not all at their places."""
        return [path for path in (self.root / "journal").iterdir() if path.suffix == ".json"]

    def leased(self) -> set[int]:
        """The numbers of what lies in leases, which nobody touches now."""
        return {int(path.read_bytes()) for path in self._leased_files()}

    def wait_until_released(self) -> None:
        """Until mq-mover has given back whatever was leased, or a query has acknowledged it."""
        eventually(lambda: not self._leased_files(), "the end of all leases")

    def _leased_files(self) -> list[Path]:
        return list(filter(_is_message, _files(self.root / "leases")))

    def wait_until_published(self, count: int) -> None:
        """Until so many messages came over HTTP, since the start of the traffic."""
        eventually(lambda: len(self.account.published) >= count, "publishes over HTTP")

    def settle(self, driver: Driver, *outs: str) -> Account:
        """Ends the traffic, fetches what is left over HTTP, and adds what Parquet has. What was
        acknowledged is gone then, and the root in order.
        """
        self.traffic.stop()
        connection = self.traffic.connection()

        def is_empty() -> bool:
            for queue in self.queues:
                while self.traffic.consume_one(connection, queue):
                    pass
            return not self.alive()

        eventually(is_empty, "the end of all messages", 90)
        connection.close()
        if outs:
            self.account.written.update(driver.run("rows", args=outs)["numbers"])
        eventually(lambda: not list(_files(self.root / "remove")), "the end of what was removed")
        assert_audits_clean(self.root)
        for daemon in self.daemons.values():
            assert daemon.popen.poll() is None
            assert not [line for line in daemon.lines if "Traceback" in line], daemon.lines
        return self.account

    def alive(self) -> list[Path]:
        """Messages that somebody should get, or will."""
        found = [path for top in ("queues", "delay", "leases") for path in _files(self.root / top)]
        return [path for path in found if _is_message(path)] + self.journals()


def opened(root: Path, folder: Path, daemons: Processes) -> Place:
    """mq, mq-mover and mq-reaper on a new root, with a queue, and traffic that is not started."""
    server = daemons.mq(root)
    with ThreadPoolExecutor() as pool:
        mover = pool.submit(daemons.mover, "--root", str(root))
        reaper = pool.submit(daemons.reaper, "--root", str(root))
        started = {"mq": server, "mover": mover.result(), "reaper": reaper.result()}
    traffic = Traffic(server.port, QUEUE, Account())
    traffic.make_queue(QUEUE)
    folder.mkdir()
    return Place(root, folder, daemons, started, traffic)


def _is_message(path: Path) -> bool:
    return not path.name.startswith(".") and path.suffix not in (".json", ".lapsed", ".lock")


def _files(top: Path) -> Iterator[Path]:
    """All files below, also while others move them."""
    for folder, _, names in os.walk(top):
        for name in names:
            yield Path(folder, name)
