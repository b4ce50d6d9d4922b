"""mqctl's page: every command of it, in order, against an mq with all daemons."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from harness.mqctl import mqctl_for

import mq.tools.mqctl
from mq.tools.mqctl.cli import COMMANDS

from .test_examples import as_shown, examples_in

PAGE = Path(mq.tools.mqctl.__file__).with_name("MQCTL.md").read_text(encoding="utf-8")
EXAMPLES = examples_in(PAGE)
MARK = "== the next example"
# Of these their own pages have the examples.
ELSEWHERE = {"doctor", "fsck", "pipeline", "worker"}


@pytest.fixture
def outputs(tmp_path: Path) -> list[str]:
    """What each example has said."""
    with mqctl_for(tmp_path, "--standalone") as (mqctl, _):
        script = "".join(f"{each.commands}printf '\\n{MARK}\\n'\n" for each in EXAMPLES)
        script = f"exec 2>&1\n{mqctl.function()}" + script.replace("/tmp/", f"{tmp_path}/")
        done = subprocess.run(
            ["bash", "-eu", "-c", script],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
            env={**os.environ, "MQ_URL": mqctl.url},
        )
    assert done.returncode == 0, done.stdout
    return done.stdout.replace(str(tmp_path), "/tmp").split(f"\n{MARK}\n")[:-1]


def test_every_example_says_what_the_page_shows(outputs: list[str]) -> None:
    assert len(outputs) == len(EXAMPLES)
    missing = []
    for example, output in zip(EXAMPLES, outputs, strict=True):
        lines = iter(output.splitlines())
        for shown in example.lines:
            pattern = as_shown(shown)
            if not any(pattern.fullmatch(line) for line in lines):
                missing.append(f"{example.commands}shows no more:\n{shown}\nbut:\n{output}")
                break
    assert not missing, "\n\n".join(missing)


def test_every_command_has_an_example() -> None:
    commands = "".join(example.commands for example in EXAMPLES)
    tried = set(re.findall(r"mqctl (?:--json )?([a-z]+)", commands))
    assert tried >= set(COMMANDS) - ELSEWHERE


def test_every_command_is_told_of() -> None:
    assert set(COMMANDS) <= set(re.findall(r"`([a-z]+)`", PAGE))
