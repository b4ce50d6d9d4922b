"""The page for workers: every program and command of it, as it stands there."""

import asyncio
import re
import runpy
import subprocess
from pathlib import Path
from typing import Any

import pytest
from harness.processes import PATIENCE_S, Processes
from harness.server import Server
from harness.waiting import comes_true
from harness.working import becomes_empty

import mq.client.worker as package
from mq import Worker
from mq.client.client import AsyncClient

PAGE = (Path(package.__file__).parent / "WORKER.md").read_text(encoding="utf-8")
URL = "http://localhost:8080"
BODY = b'{"dish": "pizza"}'
KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"headers": {"ce-type": "order.made"}},
    {"headers": {"ce-type": "order.paid"}},
    {"headers": {"x-attribute-kind": "refund"}},
    {"key": "eu-7"},
)


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


PROGRAMS = blocks("python")


def test_all_that_is_shown_is_run() -> None:
    assert 2 * (len(PROGRAMS) + len(blocks("sh"))) == PAGE.count("```")


@pytest.mark.parametrize("at", range(len(PROGRAMS)))
async def test_every_program_handles_all_that_comes(
    server: Server, client: AsyncClient, tmp_path: Path, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("orders", "payments", "videos"):
        await client.queue(name).create()
        for kind in KINDS:
            await client.queue(name).publish(BODY, **kind)
    program = tmp_path / "app.py"
    program.write_text(PROGRAMS[at].replace(URL, server.url))
    # Its last line runs it or not; here it is run either way, until all of its queues are empty.
    runs_itself = "\nworker.run()" in PROGRAMS[at] or "asyncio.run(" in PROGRAMS[at]
    name = "__main__" if runs_itself else "app"
    found = await asyncio.to_thread(runpy.run_path, str(program), run_name=name)
    worker = found.get("worker")
    if not runs_itself:
        assert isinstance(worker, Worker)
        running = asyncio.create_task(worker.run_async())
        for queue in worker.queues:
            await becomes_empty(client.queue(queue))
        worker.stop()
        await running
    assert not [entry async for entry in client.queues() if entry.sideline]
    shown = re.findall(r"^print\(.*\)  # (.*)$", PROGRAMS[at], re.MULTILINE)
    assert capsys.readouterr().out.split()[: len(shown)] == shown


@pytest.mark.usefixtures("curl")
async def test_the_commands(
    daemons: Processes, server: Server, client: AsyncClient, tmp_path: Path
) -> None:
    worker, setting = blocks("sh")
    orders = client.queue("orders")
    await orders.create()
    await orders.publish(BODY)
    (tmp_path / "app.py").write_text(PROGRAMS[0].replace(URL, server.url))
    words = worker.split()
    assert words[:2] == ["mqctl", "worker"]
    process = await asyncio.to_thread(
        daemons.start, "mq.tools.mqctl", *words[1:], "--app-dir", str(tmp_path)
    )
    await becomes_empty(orders)
    assert await asyncio.to_thread(process.terminate) == 0
    done = await asyncio.to_thread(
        subprocess.run,
        ["bash", "-ec", setting.replace("curl", "curl -sSf").replace("localhost:8080", server.url)],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert '"consumers": 20' in done.stdout
    assert (await orders.settings())["consumers"] == 20
    await comes_true(lambda: process.popen.poll() is not None)
