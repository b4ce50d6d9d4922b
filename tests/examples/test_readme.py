"""The README's sixty seconds, its programs and its commands, as they stand there."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.folders import message_files, nothing_anywhere
from harness.mqctl import mqctl_for
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
        .replace("http://localhost:8080", mq.url)
        .replace("localhost:8080", mq.url)
        .replace("/tmp/mq", str(root))
        .replace("/tmp/fetched", str(tmp_path / "fetched"))
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'curl() {{ command curl -sSf "$@"; }}\n{script}'],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "two pizzas" in done.stdout
    assert "X-Message-Receives: 1" in done.stdout
    files = message_files(root)
    assert len(files["remove"]) == 1
    assert files | {"remove": []} == nothing_anywhere()


def test_ci_runs_the_readme_s_test_command() -> None:
    command = re.search(r"<!-- the test command -->\n```sh\n(.*)\n```", README)
    assert command is not None
    assert command.group(1).endswith("deploy/check")


def test_the_programs_of_the_readme(daemons: Processes, root: Path, tmp_path: Path) -> None:
    mq = daemons.mq(root, "--standalone")
    first, worker = (
        program.replace(URL, mq.url).replace(
            "print(order.json())", "print(order.json(), flush=True)"
        )
        for program in shown("From Python", "python")
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", first], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("{'table': 7}\n", "")
    app = tmp_path / "app.py"
    app.write_text(worker)
    with (
        Client(mq.url) as client,
        subprocess.Popen([sys.executable, str(app)], stdout=subprocess.PIPE, text=True) as process,
    ):
        orders = client.queue("orders")
        orders.publish(json={"table": 8})
        assert process.stdout is not None
        assert process.stdout.readline() == "{'table': 8}\n"
        eventually(
            lambda: not orders.peek(states=("ready",)) and not orders.peek(states=("delayed",)),
            "the message is deleted",
        )
        process.terminate()
        assert process.wait(60) == 0


def test_the_commands_of_the_readme(tmp_path: Path) -> None:
    (commands,) = shown("From a shell")
    # Without a terminal top shows one picture.
    script = commands.replace("mqctl top ", "mqctl top --once ").replace("/tmp/mq", "root")
    script = script.replace("--seconds 5", "--seconds 0.2")
    with mqctl_for(tmp_path, "--standalone") as (mqctl, _):
        done = subprocess.run(
            ["bash", "-eu", "-c", mqctl.function() + script],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=tmp_path,
            env={**os.environ, "MQ_URL": mqctl.url},
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "two pizzas" in done.stdout
