"""An audit beside daemons and clients that work: what moves is not held against it."""

import asyncio
import itertools
import json
import os
from pathlib import Path

import aiohttp
import pytest
from harness.clients import work
from harness.processes import Processes
from pyspark.sql import SparkSession

from mq.spark.jobs.audit import audit

AUDITS = 2
CLIENTS = 4


@pytest.mark.certificate
async def test_what_daemons_do_meanwhile_is_no_finding(
    daemons: Processes, root: Path, spark: SparkSession
) -> None:
    mq = daemons.mq(root, "--standalone", "--folder-max", "5")
    ended = asyncio.Event()
    async with aiohttp.ClientSession(mq.url) as session:
        for queue in ("q", "q_SIDELINE"):
            async with session.put(f"/{queue}") as made:
                assert made.status == 201
            async with session.patch(f"/{queue}/settings", json={"history": True}) as changed:
                assert changed.status == 200
        # As of a queue that has been there for long: what is published from here on counts.
        for name in ("q", "q_SIDELINE"):
            os.utime(root / "settings" / f"{name}.json", (0, 0))
        numbers = itertools.count()
        clients = [asyncio.create_task(work(session, numbers, ended)) for _ in range(CLIENTS)]
        try:
            found = [
                await asyncio.to_thread(audit, spark, root, again_after_s=0.3, bodies=True)
                for _ in range(AUDITS)
            ]
        finally:
            ended.set()
            done = sum(await asyncio.gather(*clients))
        assert done > 0
    for each in found:
        assert each.is_clean, each.examples
        assert {balance.outcome for balance in each.balances} == {"reconciled"}
        assert json.dumps(each.facts())
