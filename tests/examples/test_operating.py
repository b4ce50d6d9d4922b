"""The page for operators: every command of it, in order, on a root with all daemons."""

import re
import shlex
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.pages import CURL, Example, check_shown, examples_in, run_examples, script_of, section
from harness.processes import Processes

from mq.coordination.opening import open_coordinator
from mq.http.dispatcher import ROUTES
from mq.model.settings import SETTINGS
from mq.protocol.routes import Routes
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq_mover.cli import main as mq_mover
from mq_mover.policies import ALL

from .test_examples import requests

TOP = Path(__file__).parents[2]
PAGE = section(
    "deploy/OPERATE.md",
    "How messages move",
    "Sidelines (dead-letter queues) and shovels (redrive)",
    "Archives",
    "Troubleshooting",
)
FIRST = "mq=localhost:8080 root=/tmp/mq"


def begins_daemons(example: Example) -> bool:
    return example.commands.startswith("mq-mover ")


EXAMPLES = [each for each in examples_in(PAGE) if not begins_daemons(each)]
DAEMONS = [
    command
    for each in examples_in(PAGE)
    if begins_daemons(each)
    for command in each.commands.splitlines()
]


@pytest.mark.certificate
@pytest.mark.usefixtures("curl")
def test_every_command_says_what_the_page_shows(
    daemons: Processes, root: Path, tmp_path: Path
) -> None:
    mq = daemons.mq(root, "--standalone")
    script = script_of(EXAMPLES)
    assert FIRST in script
    script = script.replace(FIRST, f"mq={mq.url} root={root}").replace(
        "/tmp/published", str(tmp_path / "published")
    )
    outputs = run_examples(CURL + script)
    check_shown(EXAMPLES, [each.replace(str(root), "/tmp/mq") for each in outputs])


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


def test_every_log_line_of_the_page_is_logged() -> None:
    told = re.findall(r"^\| log: `([^`]+)`", PAGE, re.MULTILINE)
    told += re.findall(r"^\| `([a-z]+ [^`]+)` \|", PAGE, re.MULTILINE)
    assert len(told) > 4
    code = "".join(
        path.read_text(encoding="utf-8")
        for package in ("mq", "mq_mover", "mq_reaper")
        for path in (TOP / package).rglob("*.py")
    )
    assert [each for each in told if each not in code] == []
