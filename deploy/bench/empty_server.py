"""The HTTP ceiling: aiohttp's low-level server answering 200 to everything, and nothing else.

`python -m deploy.bench.empty_server` logs its port to stderr, as mq does.
"""

import asyncio
import sys

import uvloop
from aiohttp import web


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
