"""`python -m faults.killing REQUEST FOLDER`: daemons that kill themselves, each before another
call on files.

For every n there is a root `FOLDER/{n}`, a process (a fork, made before any thread) that serves
it and dies before the request's n-th call, and `FOLDER/{n}.json`: what its client knew. It ends
with the first n that the request has no call for.
"""

import asyncio
import json
import os
import signal
import sys
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import aiohttp
from faults.requests import CUT_SHORT, REQUESTS, Case, Request, background_ends
from harness.api import Reply
from harness.faults import Fault, FaultyFiles
from harness.internals import broker
from harness.server import Server

from mq.daemon.daemon import Daemon
from mq.runtime.server_settings import ServerSettings

CALLS_MAX = 200
QUEUE = "q"


class KillingFiles(FaultyFiles):
    """Kills the process before the call that it was armed for."""

    def __init__(self) -> None:
        super().__init__()
        self._left: int | None = None
        self._counting = threading.Lock()

    def die_after(self, calls: int) -> None:
        self._left = calls

    def _pass(self, call: str, path: str, also: str = "") -> Fault | None:
        with self._counting:
            if self._left is not None:
                if self._left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                self._left -= 1
        return super()._pass(call, path, also)


@dataclass
class Known:
    """What a client may count on when the daemon dies."""

    owed: list[str]
    possible: list[str]
    status: int | None = None
    """Of the answer; None when there was none."""

    @classmethod
    def of(cls, request: Request, case: Case, reply: Reply | None) -> "Known":
        seen = replace(case, owed=set(case.owed), possible=set(case.possible))
        request.settle(seen, reply or CUT_SHORT)
        return cls(
            [body.decode() for body in seen.owed],
            [body.decode() for body in seen.possible],
            reply and reply.status,
        )

    def write(self, path: Path) -> None:
        """At once, as the process may die meanwhile."""
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(vars(self)))
        unfinished.rename(path)

    @classmethod
    def read(cls, path: Path) -> "Known":
        return cls(**json.loads(path.read_text()))


async def serve_and_die(request: Request, folder: Path, calls: int) -> None:
    files, root = KillingFiles(), folder / str(calls)
    daemon = Daemon(ServerSettings(root=root, port=0), files=files)
    port = await daemon.start()
    async with aiohttp.ClientSession(auto_decompress=False) as session:
        server = Server(daemon, root, f"http://127.0.0.1:{port}", port, session)
        # No other process is there whose facts could be old: a purge need not wait for it.
        broker(server).root.facts.settle_s = 0.0
        case: Case = request.case(server, QUEUE)
        await request.prepare(case)
        note = folder / f"{calls}.json"
        Known.of(request, case, None).write(note)
        files.die_after(calls)
        reply = await request.send(case)
        Known.of(request, case, reply).write(note)
        await background_ends(server)


def main() -> None:
    name, folder = sys.argv[1:]
    request = next(each for each in REQUESTS if each.name == name)
    for calls in range(CALLS_MAX):
        if (pid := os.fork()) == 0:
            asyncio.run(serve_and_die(request, Path(folder), calls))
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        if os.waitstatus_to_exitcode(status) == 0:
            return
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL
    raise AssertionError("a request without an end")


if __name__ == "__main__":
    main()
