"""mqctl's page: every command of it, in order, against an mq with all daemons."""

import os
import re
from pathlib import Path

import pytest
from harness.mqctl import mqctl_for
from harness.pages import check_shown, examples_in, run_examples, script_of

import mq.tools.mqctl
from mq.tools.mqctl.cli import COMMANDS

PAGE = Path(mq.tools.mqctl.__file__).with_name("MQCTL.md").read_text(encoding="utf-8")
EXAMPLES = examples_in(PAGE.partition("\n## doctor: ")[0])
# Other chapters and pages have their examples: test_doctor, test_fsck. `tail` ends at Ctrl-C.
ELSEWHERE = {"doctor", "fsck", "pipeline", "tail", "upgrade", "worker"}


@pytest.mark.certificate
def test_every_example_says_what_the_page_shows(tmp_path: Path) -> None:
    with mqctl_for(tmp_path, "--standalone") as (mqctl, _):
        script = script_of(EXAMPLES).replace("/tmp/", f"{tmp_path}/")
        outputs = run_examples(
            f"exec 2>&1\n{mqctl.function()}{script}",
            strict="-eu",
            env={**os.environ, "MQ_URL": mqctl.url},
        )
    check_shown(EXAMPLES, [each.replace(str(tmp_path), "/tmp") for each in outputs])


def test_every_command_has_an_example() -> None:
    commands = "".join(example.commands for example in EXAMPLES)
    tried = set(re.findall(r"mqctl (?:--json )?([a-z]+)", commands))
    assert tried >= set(COMMANDS) - ELSEWHERE


def test_every_command_is_told_of() -> None:
    assert set(COMMANDS) <= set(re.findall(r"`([a-z]+)`", PAGE))
