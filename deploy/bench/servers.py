"""The servers under test: mq, and aiohttp's empty answer.

`python -m deploy.bench.servers` is the latter: it answers 200 to everything, and logs its port to
stderr as mq does.
"""

import asyncio
import sys
import urllib.request
from typing import Final

import uvloop
from aiohttp import web

from deploy.bench.ceiling import Commit
from tests.harness.processes import Process, Processes

QUEUE: Final = "bench"
MESSAGES: Final = f"/{QUEUE}/messages"


def commit_flags(commit: Commit, in_memory: bool) -> tuple[str, ...]:
    """A commit mode as flags of mq; none must be forced on anything but tmpfs."""
    if commit != "none":
        return ("--commit", commit)
    return ("--durability", "none", *(() if in_memory else ("--force",)))


def start_empty_server(started: Processes) -> Process:
    """aiohttp's low-level server, answering an empty 200 to everything."""
    server = started.start("deploy.bench.servers")
    server.port = int(server.wait_for_log(r"listening port=(\d+)").group(1))
    return server


def make_queue(server: Process, queue: str = QUEUE, settings: str = "") -> None:
    """PUTs a queue; `settings` is the query of it."""
    url = f"{server.url}/{queue}{'?' if settings else ''}{settings}"
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT")) as answer:
        answer.read()


async def _answer(request: web.BaseRequest) -> web.StreamResponse:
    return web.Response()


async def _serve() -> None:
    runner = web.ServerRunner(web.Server(_answer, access_log=None))
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"listening port={runner.addresses[0][1]}", file=sys.stderr, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as loop:
        loop.run(_serve())
