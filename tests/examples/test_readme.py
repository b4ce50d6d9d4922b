"""The README's sixty seconds, its programs and its commands, as they stand there."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.folders import message_files, nothing_anywhere
from harness.processes import Processes, eventually

from mq import Client

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
URL = "http://localhost:8080"


def shown(section: str, language: str = "sh") -> list[str]:
    """The blocks of a section."""
    text = README.split(f"## {section}\n")[1].split("\n## ")[0]
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def tour() -> str:
    return shown("Sixty seconds")[0]


@pytest.mark.usefixtures("curl")
def test_the_tour_of_the_readme(daemons: Processes, root: Path, tmp_path: Path) -> None:
    mq = daemons.mq(root)
    daemons.reaper("--source", str(root / "remove"), "--keep", "3600")
    script = (
        tour()
        .replace("localhost:8080", mq.url)
        .replace("/tmp/mq", str(root))
        .replace("/tmp/head", str(tmp_path / "head"))
        .replace(".venv/bin/mqctl", f"{sys.executable} -m mq.tools.mqctl")
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'curl() {{ command curl -Sf "$@"; }}\n{script}'],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "MQ_URL": mq.url},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    created, published, *rest = done.stdout.splitlines()
    message_id = json.loads(published)["id"]
    assert json.loads(created) == {"name": "orders"}
    assert rest[:3] == ["two pizzas", "two pizzas", f"orders:{message_id}"]
    assert {"removed\t1", "in flight\t0"} <= set(rest)
    files = message_files(root)
    assert files == nothing_anywhere() | {"remove": [f"orders:{message_id}"]}


def test_ci_runs_the_readme_s_test_command() -> None:
    command = re.search(r"<!-- the test command -->\n```sh\n(.*)\n```", README)
    assert command is not None
    assert command.group(1).endswith("deploy/check")


def test_the_program_of_the_readme(daemons: Processes, root: Path, tmp_path: Path) -> None:
    mq = daemons.mq(root, "--standalone")
    (program,) = shown("From Python", "python")
    app = tmp_path / "app.py"
    app.write_text(program.replace(URL, mq.url))
    with (
        Client(mq.url) as client,
        subprocess.Popen(
            [sys.executable, "-W", "error", "-u", str(app)], stdout=subprocess.PIPE, text=True
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stdout.readline() == "{'table': 7}\n"
        orders = client.queue("orders")
        orders.publish(json={"table": 8})
        assert process.stdout.readline() == "{'table': 8}\n"
        eventually(
            lambda: not orders.peek(states=("ready",)) and not orders.peek(states=("delayed",)),
            "the message is deleted",
        )
        process.terminate()
        assert process.wait(60) == 0
