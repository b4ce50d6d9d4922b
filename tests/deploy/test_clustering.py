"""The section about several machines: its commands on two mq over one root, and its proxy's
configuration in a real nginx before them.
"""

import asyncio
import re
import shlex
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import click
import pytest
from harness.folders import message_files
from harness.lossy import Fault, lossy
from harness.pages import CURL, Example, check_shown, examples_in, run_examples, script_of, section
from harness.processes import Process, Processes
from harness.proxy import serving

from deploy.bench.others.rival import free_port
from mq.client.client import AsyncClient
from mq.client.errors import ClientError
from mq.client.options import Retry
from mq.daemon.cli import main as mq
from mq_mover.cli import main as mq_mover
from mq_reaper.cli import main as mq_reaper

PAGE = section("deploy/OPERATE.md", "Several machines")
FIRST = "alpha=localhost:8081 beta=localhost:8082"
(SITES,) = re.findall(r"```nginx\n(.*?)```", PAGE, re.DOTALL)
COMMANDS: dict[str, click.Command] = {"mq": mq, "mq-mover": mq_mover, "mq-reaper": mq_reaper}


def begins_daemons(example: Example) -> bool:
    return example.commands.split(maxsplit=1)[0] in COMMANDS


DAEMONS = [
    line
    for each in examples_in(PAGE)
    if begins_daemons(each)
    for line in each.commands.splitlines()
]


@dataclass(frozen=True)
class Machines:
    """Two mq over one root, with all upkeep, and an address for both."""

    root: Path
    alpha: Process
    beta: Process
    url: str


@pytest.fixture
def pair(daemons: Processes, root: Path) -> tuple[Process, Process]:
    mqs = tuple(daemons.mq(root, "--peers", "1", "--peer-index", at) for at in "01")
    for member in ("alpha", "beta"):
        daemons.mover("--root", str(root), "--member", member)
        daemons.reaper("--source", str(root / "remove"))
    return mqs


def sites(*ports: int, listens: int) -> str:
    """The page's, for servers of this machine."""
    said = SITES.replace("listen 80;", f"listen 127.0.0.1:{listens};")
    for address, port in zip(("10.0.0.1:8080", "10.0.0.2:8080"), ports, strict=True):
        assert address in said
        said = said.replace(address, f"127.0.0.1:{port}")
    return said


@pytest.fixture
async def machines(
    pair: tuple[Process, Process], root: Path, tmp_path: Path
) -> AsyncIterator[Machines]:
    port, work = free_port(), tmp_path / "nginx"
    work.mkdir()
    alpha, beta = pair
    async with serving(sites(alpha.port, beta.port, listens=port), port, work):
        yield Machines(root, alpha, beta, f"http://127.0.0.1:{port}")


@pytest.mark.certificate
@pytest.mark.usefixtures("curl")
def test_every_command_says_what_the_page_shows(pair: tuple[Process, Process]) -> None:
    examples = [each for each in examples_in(PAGE) if not begins_daemons(each)]
    script = script_of(examples)
    assert FIRST in script
    alpha, beta = pair
    script = script.replace(FIRST, f"alpha={alpha.url} beta={beta.url}")
    check_shown(examples, run_examples(CURL + script))


@pytest.mark.parametrize("command", DAEMONS)
def test_every_flag_of_a_daemon_is_one(command: str) -> None:
    name, *arguments = shlex.split(command)
    COMMANDS[name].make_context(name, arguments)


@pytest.mark.certificate
async def test_what_waits_behind_the_proxy_hears_of_the_other_machine(machines: Machines) -> None:
    large = bytes(range(256)) * 20_000
    async with AsyncClient(machines.url) as client, AsyncClient(machines.beta.url) as beside:
        orders = client.queue("orders")
        await orders.create()
        waiting = [asyncio.create_task(orders.fetch(wait_s=60)) for _ in range(4)]
        for _ in waiting:
            await beside.queue("orders").publish(large)
        for message in await asyncio.gather(*waiting):
            assert message is not None
            assert message.body == large
            await message.delete()
        async with orders.consume(via="websocket") as consumer:
            await beside.queue("orders").publish(large)
            message = await consumer.next()
            assert message.body == large
            await message.delete()


@pytest.mark.certificate
async def test_a_publish_that_was_begun_is_not_sent_again_by_the_proxy(
    pair: tuple[Process, Process], root: Path, tmp_path: Path
) -> None:
    port, work = free_port(), tmp_path / "nginx"
    work.mkdir()
    async with lossy(pair[0].port) as alpha, lossy(pair[1].port) as beta:
        async with serving(sites(alpha.port, beta.port, listens=port), port, work):
            url = f"http://127.0.0.1:{port}"
            async with AsyncClient(url, retry=Retry(attempts=1)) as client:
                orders = client.queue("orders")
                await orders.create()
                alpha.faults.append(Fault.LOSE)
                beta.faults.append(Fault.LOSE)
                with pytest.raises(ClientError):
                    await orders.publish(b"once")
        assert len(alpha.requests("POST")) + len(beta.requests("POST")) == 1
    assert len(message_files(root)["queues"]) == 1


@pytest.mark.certificate
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
async def test_who_goes_on_by_the_proxy_loses_nothing_when_a_machine_goes(
    machines: Machines, how: signal.Signals
) -> None:
    retry = Retry(attempts=20, first_s=0.05, longest_s=1, deadline_s=60)
    published: list[str] = []
    async with AsyncClient(machines.url, retry=retry) as client:
        orders = client.queue("orders")
        await orders.create()

        async def publish(name: str) -> None:
            for number in range(40):
                await orders.publish(f"{name} {number}")
                published.append(f"{name} {number}")
                if len(published) == 60:
                    machines.alpha.popen.send_signal(how)

        await asyncio.gather(*(publish(name) for name in "abcd"))
        found = set()
        while len(found) < len(published):
            message = await orders.fetch(wait_s=60)
            assert message is not None, f"{len(published) - len(found)} are missing"
            found.add(message.text())
            await message.delete()
    assert found == set(published)
    assert machines.alpha.popen.wait(60) == (0 if how is signal.SIGTERM else -signal.SIGKILL)
