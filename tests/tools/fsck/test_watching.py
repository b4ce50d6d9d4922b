"""A check beside daemons and clients that work: what moves is not held against it."""

import asyncio
import itertools
from pathlib import Path

import aiohttp
from harness.clients import work
from harness.processes import Processes
from rich.console import Console

from mq.tools.fsck.checking import Asked, Check, Doing, open_for_fsck
from mq.tools.fsck.report import Outcome, Report
from mq.tools.fsck.watching import Bar

CHECKS = 3
CLIENTS = 8


def check(root: Path) -> Report:
    opened, flusher, _ = open_for_fsck(root)
    asked = Asked((), Doing.REPAIR, again_after_s=0.3)
    try:
        with Bar(Console(stderr=True)) as bar:
            return Check(opened, flusher, asked, bar).run()
    finally:
        flusher.close()


async def test_what_daemons_do_meanwhile_breaks_nothing(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, "--standalone", "--folder-max", "5")
    ended = asyncio.Event()
    async with aiohttp.ClientSession(mq.url) as session:
        for queue in ("q", "q_SIDELINE"):
            async with session.put(f"/{queue}") as made:
                assert made.status == 201
        numbers = itertools.count()
        clients = [asyncio.create_task(work(session, numbers, ended)) for _ in range(CLIENTS)]
        reports = [await asyncio.to_thread(check, root) for _ in range(CHECKS)]
        ended.set()
        assert sum(await asyncio.gather(*clients)) > 0
    for report in reports:
        assert report.outcome is Outcome.CLEAN, (report.remaining, report.put_right)
        assert not (root / "lost").exists()
