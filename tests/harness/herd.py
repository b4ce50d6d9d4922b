"""Three kinds of daemons on one root as a history's clients meet them: faulted, healed, drained."""

import asyncio
import itertools
import os
import random
import sys
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from harness.clients import QUEUE, Client, Recorder
from harness.folders import message_files
from harness.history import US_PER_MS, History
from harness.nemesis import Fault, Kind, Member
from harness.processes import Process, Processes
from harness.rules import Rule, check, report
from harness.waiting import comes_true
from mq.clock import SystemClock
from mq.lifecycle import State
from mq.store.audit import audit
from mq.store.files import Files
from mq.store.root import open_root

VISIBILITY_S = 1.0
# By then all that is alive was due, brought back and delivered.
DRAIN_S = 10.0


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
        self._root = root
        self._daemons = daemons
        self._flags = ("--visibility", str(VISIBILITY_S), "--port", "0", *flags)
        flags = self._flags[:2] + self._flags[4:]
        self.servers = [
            self._member(f"mq-{number}", partial(daemons.mq, next(places), *flags))
            for number in range(servers)
        ]
        self.mover = self._member("mover", partial(daemons.mover, "--root", str(next(places))))
        self.reaper = self._member("reaper", partial(daemons.reaper, "--root", str(next(places))))
        self.members = [*self.servers, self.mover, self.reaper]
        self._starts = [member.start for member in self.members]
        self.recorder = Recorder()

    @staticmethod
    def _member(name: str, start: Any) -> Member:
        member = Member(name, start, start())
        member.is_up.set()
        return member

    def spoil(self, chance: random.Random) -> None:
        """From their next start the members stop or kill themselves between calls on files. One
        more mover stays as it is, so that what a stopped server has in hand would be taken from
        it.
        """
        self._daemons.mover("--root", str(self._root))
        for member in self.members:
            every = {"mover": 1500, "reaper": 600}.get(member.name, 4000)
            member.start = partial(self._start_spoilt, member.name, chance, every)

    def _start_spoilt(self, name: str, chance: random.Random, every: int) -> Process:
        module = {"mover": "mq_mover", "reaper": "mq_reaper"}.get(name, "mq")
        flags = self._flags if module == "mq" else ()
        process = self._daemons.start(
            "harness.stopping",
            *(module, "--root", str(self._root), *flags),
            env={
                "PYTHONPATH": os.pathsep.join(sys.path),
                "STOPPING_SEED": str(chance.randrange(2**31)),
                "STOPPING_EVERY": str(every),
                "STOPPING_KILLS": "0.3",
            },
        )
        if module == "mq":
            process.port = int(process.wait_for_log(r"listening .*port=(\d+)").group(1))
        else:
            process.wait_for_log("moving|reaping")
        return process

    async def heal(self) -> None:
        """All members as they were at first."""
        for member, start in zip(self.members, self._starts, strict=True):
            member.start = start
            await member.suffer(Fault(0, Kind.KILL, member.name, 0))

    def clients(
        self, session: aiohttp.ClientSession, seed: int, each: int, hasty: float = 0.0
    ) -> list[Client]:
        """So many clients at each server, each with a chance of its own."""
        return [
            Client(
                self.recorder,
                session,
                self.servers,
                home,
                random.Random(f"{seed} {home.name} {number}"),
                hasty,
            )
            for home in self.servers
            for number in range(each)
        ]

    def alive(self) -> int:
        files = message_files(self._root)
        return len(files["queues"]) + len(files["delay"])

    async def drain(self, clients: list[Client]) -> None:
        """Fetches and deletes whatever is there, until nothing is."""

        began_ms = SystemClock().now_ms()

        async def consume(client: Client) -> None:
            while self.alive():
                late_ms = SystemClock().now_ms() - began_ms
                assert late_ms < DRAIN_S * 1000, self.left()
                if (fetched := await client.fetch()) is not None:
                    surely = partial(client.delete, fetched, client.home, surely=True)
                    await comes_true(surely, f"the delete of {fetched.id}")

        await asyncio.gather(*(consume(client) for client in clients))
        await comes_true(lambda: not message_files(self._root)["remove"], "all that was removed")

    def left(self) -> str:
        """What is there still, and who has what open, for whoever must find out why."""
        paths = [*(self._root / "queues" / QUEUE).iterdir(), *(self._root / "delay").iterdir()]
        lines = [f"{path}: {path.stat()}" for path in paths]
        lines.append(f"now {SystemClock().now_ms()}")
        lines.append(Path("/proc/locks").read_text())
        lines += [f"{member.name} {member.process.popen.pid}" for member in self.members]
        lines += [f"{member.name}: {line}" for member in self.members for line in member.logs()]
        return "\n".join(lines)

    def history(self) -> History:
        """What was recorded, and what is alive."""
        files = message_files(self._root)
        alive = {name.partition(":")[2] for name in files["queues"] + files["delay"]}
        return History(
            self.recorder.operations, frozenset(alive), round(VISIBILITY_S * 1000) * US_PER_MS
        )

    def assert_it_holds(self, seed: int, rules: tuple[Rule, ...]) -> None:
        """The rules of the history, the root's own, and that no daemon met what it does not
        know.
        """
        history = self.history()
        breaches = check(history, rules)
        assert not breaches, f"seed {seed}: {report(history, breaches)}"
        found = audit(open_root(str(self._root), Files(), SystemClock()))
        assert found.violations == [], f"seed {seed}"
        assert found.foreign == 0, f"seed {seed}: {found.foreign_name}"
        assert found.messages[State.READY] + found.messages[State.DELAYED] == 0
        for member in self.members:
            faults = [line for line in member.logs() if "Traceback" in line]
            assert not faults, f"seed {seed}: {member.logs()}"
