"""The page for operators: every command of it, in order, on a root with all daemons."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.processes import Processes

from mq.coordination.opening import open_coordinator
from mq.http.routes import ROUTES
from mq.http.routing import Routes
from mq.model.settings import SETTINGS
from mq.store.core.root import open_root
from mq.store.disk.files import Files
from mq_mover.cli import main as mq_mover
from mq_mover.policies import ALL

from .test_examples import Example, as_shown, examples_in, requests

PAGE = (Path(__file__).parents[2] / "deploy" / "OPERATING.md").read_text(encoding="utf-8")
FIRST = "mq=localhost:8080 root=/tmp/mq"
MARK = "== the next example"


def begins_daemons(example: Example) -> bool:
    return example.commands.startswith("mq-mover ")


EXAMPLES = [each for each in examples_in(PAGE) if not begins_daemons(each)]
DAEMONS = [
    command
    for each in examples_in(PAGE)
    if begins_daemons(each)
    for command in each.commands.splitlines()
]


@pytest.mark.usefixtures("curl")
def test_every_command_says_what_the_page_shows(
    daemons: Processes, root: Path, tmp_path: Path
) -> None:
    mq = daemons.mq(root, "--standalone")
    script = "".join(f"{each.commands}printf '\\n{MARK}\\n'\n" for each in EXAMPLES)
    assert FIRST in script
    script = script.replace(FIRST, f"mq={mq.url} root={root}").replace(
        "/tmp/published", str(tmp_path / "published")
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'curl() {{ command curl -sS "$@"; echo; }}\n{script}'],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = done.stdout.split(f"\n{MARK}\n")[:-1]
    for example, output in zip(EXAMPLES, outputs, strict=True):
        lines = iter(output.splitlines())
        for shown in example.lines:
            pattern = as_shown(shown.replace("/tmp/mq", str(root)))
            assert any(pattern.fullmatch(line) for line in lines), (
                f"{example.commands}shows no more:\n{shown}\nbut:\n{output}"
            )


@pytest.mark.parametrize("command", DAEMONS)
def test_every_flag_of_a_daemon_is_one(command: str, tmp_path: Path) -> None:
    arguments = shlex.split(command.replace("$(hostname -s)", "alpha"))[1:]
    said = mq_mover.make_context("mq-mover", arguments).params
    # And the coordinator is one that can be made.
    made = open_root(str(tmp_path / "root"), Files(), FakeClock())
    open_coordinator(said["coordinator"], made, said["member"] or "some")


def test_every_policy_and_every_setting_of_a_move_is_told_of() -> None:
    assert {policy.name for policy in ALL} <= set(re.findall(r"`([a-z-]+)`", PAGE))
    moving = {
        name for name in SETTINGS if name.startswith(("max_re", "message_", "exp", "shov", "sw"))
    }
    assert moving <= set(re.findall(r"`([a-z_]+)`", PAGE))


def test_every_request_of_the_page_is_one() -> None:
    routes = Routes(ROUTES)
    for method, path, _ in requests(EXAMPLES):
        found = routes.find(re.sub(r"\$\w+", "x", path))
        assert found is not None, path
        assert method in found[0].operations
