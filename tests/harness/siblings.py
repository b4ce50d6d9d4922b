"""The processes behind one port: who they are, and connections to each of them."""

import contextlib
import os
import re
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import aiohttp

from harness.commands import is_running
from harness.process_faults import Fault, Kind, Member, stand_still, tally_fault
from harness.processes import PATIENCE_S, Process, eventually
from harness.raw import RawConnection, raw_connection, raw_head
from harness.server import Serve, Server
from harness.waiting import comes_true
from mq.model.limits import CHILD_RESTART_S_MAX
from mq.runtime.exchange import make_pairs


def started(process: Process, daemon: str) -> list[int]:
    """The pids of all that the process says it started under this name."""
    matches = (re.search(rf"started daemon={daemon} pid=(\d+)", line) for line in process.lines)
    return [int(match.group(1)) for match in matches if match]


def server_pids(process: Process, processes: int) -> list[int]:
    """The pids of the servers of `mq --processes`, as they are now."""
    return [started(process, f"mq-{index}")[-1] for index in range(processes)]


def served(process: Process, index: int) -> int:
    """How often the server with this index has begun to serve."""
    return sum(bool(re.search(rf" serving .*process={index}$", line)) for line in process.lines)


def are_gone(pids: list[int]) -> None:
    """Waits until none of these processes runs."""
    eventually(lambda: not any(map(is_running, pids)), f"the end of {pids}")


@dataclass
class Sibling:
    """One of the servers of a member that is an `mq --processes`; what it suffers, its supervisor
    sees to. One fault at a time, also of the supervisor's.
    """

    supervisor: Member
    index: int

    @property
    def name(self) -> str:
        return f"{self.supervisor.name}'s {self.index}"

    async def suffer(self, fault: Fault) -> None:
        """One fault; then it serves again."""
        async with self.supervisor.lock:
            await self._suffer(fault.kind, fault.lasts_s)
            tally_fault(fault.kind)

    async def _suffer(self, kind: Kind, lasts_s: float) -> None:
        process = self.supervisor.process
        pid = started(process, f"mq-{self.index}")[-1]
        before = served(process, self.index)
        if kind in (Kind.STOP, Kind.STOP_AND_KILL):
            os.kill(pid, signal.SIGSTOP)
            await stand_still(lasts_s)
        if kind is Kind.STOP:
            os.kill(pid, signal.SIGCONT)
            return
        os.kill(pid, signal.SIGTERM if kind is Kind.TERMINATE else signal.SIGKILL)
        await comes_true(
            lambda: served(process, self.index) > before,
            f"{self.name} again",
            patience_s=CHILD_RESTART_S_MAX + PATIENCE_S,
        )


@contextlib.asynccontextmanager
async def connection_to_each(
    port: int, processes: int, queue: str = "orders"
) -> AsyncIterator[list[RawConnection]]:
    """A connection to each of so many processes, in the order of their indexes. The queue is
    there: what it tells of itself says who answers.
    """
    found: dict[int, RawConnection] = {}
    async with contextlib.AsyncExitStack() as stack:

        async def try_another() -> bool:
            connection = await stack.enter_async_context(raw_connection(port))
            await connection.send(raw_head("GET", f"/{queue}"))
            answer = await connection.response()
            assert answer.status == 200, answer
            assert answer.json()["process"]["of"] == processes
            found.setdefault(answer.json()["process"]["index"], connection)
            return len(found) == processes

        await comes_true(try_another, "an answer of each process")
        yield [found[index] for index in sorted(found)]


@contextlib.asynccontextmanager
async def session_of_each(
    url: str, processes: int, queue: str = "orders"
) -> AsyncIterator[list[aiohttp.ClientSession]]:
    """The same as sessions of one connection, for one request or WebSocket at a time."""
    found: dict[int, aiohttp.ClientSession] = {}
    async with contextlib.AsyncExitStack() as stack:

        async def try_another() -> bool:
            connector = aiohttp.TCPConnector(limit=1)
            session = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
            async with session.get(f"{url}/{queue}") as answer:
                said = await answer.json()
            found.setdefault(said["process"]["index"], session)
            return len(found) == processes

        await comes_true(try_another, "an answer of each process")
        yield [found[index] for index in sorted(found)]


@contextlib.asynccontextmanager
async def siblings(serve: Serve, **settings: Any) -> AsyncIterator[list[Server]]:
    """Two processes of one mq, in one loop."""
    pairs = make_pairs(2)
    sends = [each[1] for each in pairs]
    try:
        yield [
            await serve(
                process_index=index,
                exchange=tuple(each.fileno() for each in (pairs[index][0], *sends)),
                **settings,
            )
            for index in range(2)
        ]
    finally:
        for each in (one for pair in pairs for one in pair):
            each.detach() if each.fileno() < 0 else each.close()
