"""The composition's commands, as processes on one root beside a real ZooKeeper: as compose.yaml has
them, but for what an engine would give: addresses, ports and the folder.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness.commands import run_command
from harness.composition import CONTAINER, composition
from harness.pages import section
from harness.processes import PATIENCE_S, Process, Processes, eventually
from harness.zookeeper import ZooKeeper, zookeeper

from mq import Client

pytestmark = pytest.mark.certificate
PAGE = section("deploy/OPERATE.md", "Containers")
# What each says once it is up.
SAYS = {"mq": r"listening .*port=(\d+)", "mq-mover": "moving", "mq-reaper": "reaping"}
SHOWS = r"metrics.*?port=(\d+)"


@dataclass
class Composed:
    """All services, running."""

    running: dict[str, list[Process]]
    token: Path
    services: dict[str, Any]
    work: Path

    def url(self, service: str) -> str:
        return self.running[service][0].url

    def page(self, block: str) -> str:
        """What a script of the page says here."""
        mqctl = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}'
        for port, service in ((8080, "mq-1"), (8081, "mq-2")):
            block = block.replace(f"http://localhost:{port}", self.url(service))
        return script(f"{mqctl}\n{block}", self.work)


def script(text: str, work: Path) -> str:
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        cwd=work, capture_output=True, text=True, timeout=4 * PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def blocks() -> list[str]:
    return re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)


def started(
    daemons: Processes, service: dict[str, Any], root: Path, tokens: Path, zookeeper_port: int
) -> Process:
    """One process of a service, where an engine would run a container."""
    program, *arguments = service["command"]
    here = {"9101": "0", "9102": "0"}
    flags = [here.get(each, each) for each in arguments]
    flags = [each.replace("zookeeper:2181", f"127.0.0.1:{zookeeper_port}") for each in flags]
    env = {"MQ_ROOT": str(root)}
    if program == "mq":
        env |= service["environment"] | {"MQ_TOKENS": str(tokens), "MQ_PORT": "0"}
        # As in the image; what the port is, is the engine's to say.
        env |= {"MQ_ADDRESS": "127.0.0.1"}
    process = daemons.start(program.replace("-", "_"), *flags, env=env)
    found = process.wait_for_log(SAYS[program])
    process.port = int((found if program == "mq" else process.wait_for_log(SHOWS)).group(1))
    return process


@pytest.fixture
def keeper(tmp_path: Path) -> Iterator[ZooKeeper]:
    said = (CONTAINER / "zoo.cfg").read_text(encoding="utf-8")
    here = {"dataDir=/data": "dataDir={data}", "dataLogDir=/datalog": "dataLogDir={data}/log"}
    here |= {"clientPort=2181": "clientPort={port}\nclientPortAddress=127.0.0.1"}
    for line, stands in here.items():
        assert line in said
        said = said.replace(line, stands)
    with zookeeper(tmp_path / "zookeeper", said) as server:
        yield server


@pytest.fixture
def composed(keeper: ZooKeeper, daemons: Processes, root: Path, tmp_path: Path) -> Composed:
    root.mkdir(mode=0o700)
    services = composition()["services"]
    mqctl = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}'
    script(f"{mqctl}\n{blocks()[0]}", tmp_path)
    tokens = tmp_path / "deploy/container/access/tokens"
    running = {
        name: [
            started(daemons, service, root, tokens, keeper.port)
            for _ in range(service["deploy"].get("replicas", 1))
        ]
        for name, service in services.items()
        if name != "zookeeper"
    }
    return Composed(running, tmp_path / "operator.token", services, tmp_path)


def test_it_serves_redelivers_and_ends_well(composed: Composed, root: Path) -> None:
    assert {name: len(each) for name, each in composed.running.items()} == {
        "mq-1": 1, "mq-2": 1, "mq-mover": 2, "mq-reaper": 1,
    }  # fmt: skip
    for name, service in composed.services.items():
        for process in composed.running.get(name, []):
            is_healthy(service["healthcheck"]["test"], process)

    said = composed.page(blocks()[1])
    assert "two pizzas" in said

    token = composed.token.read_text().strip()
    with (
        Client(composed.url("mq-1"), token=token) as first,
        Client(composed.url("mq-2"), token=token) as second,
    ):
        # What the one took the other serves, and the movers bring it when it is due.
        for table in range(20):
            first.queue("orders").publish(json={"table": table}, delay_s=1)
        tables = set()
        while len(tables) < 20:
            fetched = eventually(lambda: second.queue("orders").fetch(wait_s=1), "a message")
            with fetched as order:
                tables.add(order.json()["table"])
        eventually(lambda: not any((root / "remove").rglob("*:*")), "all reaped", 2 * PATIENCE_S)

    members = eventually(
        lambda: both(composed, r"\b(\S+-\d+-[0-9a-f]{8})\b"), "two members", 4 * PATIENCE_S
    )
    assert len(members) == 2
    for name, processes in composed.running.items():
        for process in processes:
            assert process.terminate() == 0, (name, process.lines)


def both(composed: Composed, pattern: str) -> set[str]:
    """The members, once each of the two mq-movers is one."""
    said = run_command(
        "mq.tools.mqctl",
        "members",
        "--url",
        composed.url("mq-1"),
        "--token-file",
        str(composed.token),
    )
    found = set(re.findall(pattern, said.stdout))
    return found if len(found) == len(composed.running["mq-mover"]) else set()


def is_healthy(test: list[str], process: Process) -> None:
    """As the engine asks, but for the port."""
    kind, program, *arguments = test
    assert kind == "CMD"
    if program == "mqctl":
        command = [sys.executable, "-m", "mq.tools.mqctl", *arguments]
    else:
        assert program == "python"
        address = re.sub(r":\d+/", f":{process.port}/", arguments.pop())
        command = [sys.executable, *arguments, address]

    def succeeds(url: str) -> bool:
        env = os.environ | {"MQ_URL": url}
        return subprocess.run(command, env=env, capture_output=True, timeout=120).returncode == 0

    eventually(lambda: succeeds(process.url), "health")
    if program == "mqctl":
        assert not succeeds("http://127.0.0.1:1")
