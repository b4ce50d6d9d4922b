"""The page for workers: every program and command of it, as it stands there."""

import asyncio
import importlib
import importlib.util
import re
import runpy
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from harness.processes import PATIENCE_S, Processes
from harness.server import Server
from harness.waiting import comes_true
from harness.working import becomes_empty, working

import mq.client.worker as package
from mq import Worker
from mq.client.client import AsyncClient
from mq.client.worker.dispatching import fits

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


TASKS = [each for each in blocks("python") if re.search("worker.task|from app ", each)]
PROGRAMS = [each for each in blocks("python") if each not in TASKS]


def test_all_that_is_shown_is_run() -> None:
    assert 2 * (len(PROGRAMS) + len(TASKS) + len(blocks("sh"))) == PAGE.count("```")


@pytest.mark.certificate
@pytest.mark.parametrize("at", range(len(PROGRAMS)))
async def test_every_program_handles_all_that_comes(
    server: Server, client: AsyncClient, tmp_path: Path, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ("orders", "orders.eu", "payments", "videos")
    for name in names:
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
        for name in names:
            if any(fits(name, each) for each in worker.queues):
                await becomes_empty(client.queue(name))
        worker.stop()
        await running
    assert not [entry async for entry in client.queues() if entry.sideline]
    shown = re.findall(r"^print\(.*\)  # (.*)$", PROGRAMS[at], re.MULTILINE)
    assert capsys.readouterr().out.split()[: len(shown)] == shown


class Web:
    """Stands for FastAPI and Django, which the tests do not install. It knows of each what the page
    uses.
    """

    def post(self, _: str) -> Any:
        return lambda function: function

    @staticmethod
    def installed(monkeypatch: pytest.MonkeyPatch) -> None:
        transaction = SimpleNamespace(atomic=lambda call: call, on_commit=lambda call: call())
        for name, members in {
            "fastapi": {"FastAPI": Web},
            "django": {},
            "django.db": {"transaction": transaction},
        }.items():
            module = ModuleType(name)
            vars(module).update(members)
            monkeypatch.setitem(sys.modules, name, module)


async def test_tasks_are_sent_from_programs_and_web_applications(
    server: Server,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    Web.installed(monkeypatch)
    app, asks, fastapi, django = TASKS
    (tmp_path / "app.py").write_text(app.replace(URL, server.url))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "app", raising=False)
    worker = importlib.import_module("app").worker

    def run(program: str) -> dict[str, Any]:
        (tmp_path / "asks.py").write_text(program)
        return runpy.run_path(str(tmp_path / "asks.py"))

    def in_threads() -> None:
        run(asks)
        run(django)["register"]("Eve")

    async with working(worker):
        await asyncio.to_thread(in_threads)
        assert await run(fastapi)["greets"]("Fay") == "hello Fay"
    shown = re.findall(r"^print\(.*\)  # (.*)$", asks, re.MULTILINE)
    assert capsys.readouterr().out.splitlines() == shown
    async with AsyncClient(server.url) as client:
        assert [e.name async for e in client.queues()] == ["mails", "mails-results"]
    monkeypatch.delitem(sys.modules, "app")


@pytest.mark.certificate
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
