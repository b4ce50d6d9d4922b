"""Three kinds of daemons on one root as a history's clients meet them: faulted, healed, drained."""

import asyncio
import itertools
import os
import random
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import aiohttp

from harness.audits import audit
from harness.clients import QUEUE, Client, Recorder
from harness.folders import message_files
from harness.history import US_PER_MS, History, Stall
from harness.owners import Owner
from harness.process_faults import Member
from harness.processes import Process, Processes
from harness.queue_rules import QUEUES
from harness.rules import ALWAYS, Rule, check, report
from harness.stopping import stalls
from harness.tally import tally
from harness.waiting import comes_true
from mq.model.clock import SystemClock
from mq.model.lifecycle import State
from mq.store.disk.files import Files
from mq.store.opening import open_root

VISIBILITY_S = 1.0
# Daemons that measure a server's clock by themselves err by half a round trip each.
CLOCKS_APART_US = 250_000
# By then all that is alive was due, brought back and delivered.
DRAIN_S = 60.0
# A queue that its owner deletes and makes again while clients use it.
OWNED_QUEUE = "returns"
# Calls on files between two places where a daemon stops itself, about.
EVERY = {"mq": 100, "mq_mover": 40, "mq_reaper": 400}


def _member(name: str, start: Callable[[], Process]) -> Member:
    member = Member(name, start, start())
    member.is_up.set()
    return member


class Cluster:
    """The members on one root, and what clients recorded of them."""

    def __init__(
        self,
        daemons: Processes,
        root: Path,
        servers: int,
        *flags: str,
        mounts: tuple[Path, ...] = (),
    ) -> None:
        """`mounts`: the root as the members reach it, by turns, where that is not one path."""
        places = itertools.cycle(mounts or (root,))
        self._clocks_apart_us = CLOCKS_APART_US if mounts else 0
        self._root = root
        self._daemons = daemons
        self._flags = ("--visibility", str(VISIBILITY_S), "--port", "0", *flags)
        flags = self._flags[:2] + self._flags[4:]
        starts: dict[str, Callable[[], Process]] = {
            f"mq-{number}": partial(daemons.mq, next(places), *flags) for number in range(servers)
        }
        starts["mover"] = partial(daemons.mover, "--root", str(next(places)))
        starts["reaper"] = partial(daemons.reaper, "--root", str(next(places)))
        with ThreadPoolExecutor() as pool:
            *self.servers, self.mover, self.reaper = pool.map(_member, starts, starts.values())
        self.members = [*self.servers, self.mover, self.reaper]
        self._armed = root.parent / "stopping"
        self.recorder = Recorder()
        self._recorders = {QUEUE: self.recorder, OWNED_QUEUE: Recorder()}

    def arm(self, chance: random.Random) -> list[Member]:
        """All but the last server, and one more mover: from their next start they stop or kill
        themselves between calls on files, until they are healed. That server and another mover
        stay as they are, so that what a stopped one has in hand would be taken from it.
        """
        self._armed.touch()
        self._daemons.mover("--root", str(self._root))
        self.members.append(_member("mover-2", self.mover.start))
        armed = [member for member in self.members if member is not self.servers[-1]]
        for member in armed:
            member.start = partial(self._start_armed, member.name, chance)
        return armed

    def _start_armed(self, name: str, chance: random.Random) -> Process:
        kind = name.partition("-")[0]
        module = kind if kind == "mq" else f"mq_{kind}"
        process = self._daemons.start(
            "harness.stopping",
            *(module, "--root", str(self._root), *(self._flags if module == "mq" else ())),
            env={
                "PYTHONPATH": os.pathsep.join(sys.path),
                "STOPPING_SEED": str(chance.randrange(2**31)),
                "STOPPING_EVERY": str(EVERY[module]),
                "STOPPING_KILLS": "0.2",
                "STOPPING_WHILE": str(self._armed),
            },
        )
        if module == "mq":
            process.port = int(process.wait_for_log(r"listening .*port=(\d+)").group(1))
        else:
            process.wait_for_log("moving|reaping")
        return process

    def heal(self) -> None:
        """No member stops itself any more; what stands still by then, its keeper sees to."""
        self._armed.unlink()

    def clients(
        self,
        session: aiohttp.ClientSession,
        seed: int,
        each: int,
        hasty: float = 0.0,
        queue: str = QUEUE,
        prompt: float = 0.6,
        homes: list[Member] | None = None,
        giving: float = 0.45,
    ) -> list[Client]:
        """So many clients at each server (of `homes`), each with a chance of its own."""
        return [
            Client(
                self._recorders[queue],
                session,
                self.servers,
                home,
                random.Random(f"{seed} {queue} {home.name} {number}"),
                hasty,
                queue,
                prompt,
                giving,
            )
            for home in homes or self.servers
            for number in range(each)
        ]

    def owner(self, session: aiohttp.ClientSession, seed: int, number: int = 0) -> Owner:
        """One who makes and deletes OWNED_QUEUE."""
        chance = random.Random(f"{seed} owner {number}")
        return Owner(self._recorders[OWNED_QUEUE], session, self.servers, chance, OWNED_QUEUE)

    def alive(self) -> int:
        files = message_files(self._root)
        return len(files["queues"]) + len(files["delay"])

    async def drain(self, clients: list[Client], patience_s: float = DRAIN_S) -> None:
        """Fetches and deletes whatever is there, until nothing is."""

        began_ms = SystemClock().now_ms()

        async def consume(client: Client) -> None:
            while self.alive():
                late_ms = SystemClock().now_ms() - began_ms
                assert late_ms < patience_s * 1000, self.left()
                if (fetched := await client.fetch()) is not None:
                    surely = partial(client.delete, fetched, client.home, surely=True)
                    await comes_true(surely, f"the delete of {fetched.id}")

        await asyncio.gather(*(consume(client) for client in clients))
        await comes_true(lambda: not message_files(self._root)["remove"], "all that was removed")

    def left(self) -> str:
        """What is there still, and who has what open, for whoever must find out why."""
        paths = [*(self._root / "queues").glob("*/*"), *(self._root / "delay").iterdir()]
        lines = [f"{path}: {path.stat()}" for path in paths]
        lines.append(f"now {SystemClock().now_ms()}")
        lines.append(Path("/proc/locks").read_text())
        lines += [f"{member.name} {member.process.popen.pid}" for member in self.members]
        lines += [f"{member.name}: {line}" for member in self.members for line in member.logs()]
        return "\n".join(lines)

    def history(self, queue: str = QUEUE) -> History:
        """What was recorded of the queue, and what is alive."""
        files = message_files(self._root)
        entries = (name.partition(":") for name in files["queues"] + files["delay"])
        return History(
            self._recorders[queue].operations,
            frozenset(message_id for of, _, message_id in entries if of == queue),
            round(VISIBILITY_S * 1000) * US_PER_MS,
            self._stalls(queue),
            self._clocks_apart_us,
        )

    def _stalls(self, queue: str) -> list[Stall]:
        """Claims of the queue's messages in whose middle a server stood still."""
        found = []
        for server in self.servers:
            for stall in stalls(server.logs()):
                _, _, message_id = stall.path.partition(f"/delay/{queue}:")
                if message_id and stall.place.startswith("fetch"):
                    times = (stall.began_us, stall.ended_us)
                    found.append(Stall(server.name, stall.place, message_id, *times))
        return found

    def assert_it_holds(
        self, seed: int, rules: tuple[Rule, ...], owned: tuple[Rule, ...] = (*ALWAYS, *QUEUES)
    ) -> None:
        """The rules of the histories, the root's own, and that no daemon met what it does not
        know. `owned`: those of the queue that its owners delete.
        """
        for queue, of_queue in ((QUEUE, rules), (OWNED_QUEUE, owned)):
            history = self.history(queue)
            breaches = check(history, of_queue)
            assert not breaches, f"seed {seed}, {queue}: {report(history, breaches)}"
        found = audit(open_root(str(self._root), Files(), SystemClock()))
        assert found.is_clean, f"seed {seed}: {found.violations}"
        assert found.foreign == 0, f"seed {seed}: {found.foreign_name}"
        assert found.messages[State.READY] + found.messages[State.DELAYED] == 0
        for member in self.members:
            faults = [line for line in member.logs() if "Traceback" in line]
            assert not faults, f"seed {seed}: {member.logs()}"
        tally("histories", 1)
