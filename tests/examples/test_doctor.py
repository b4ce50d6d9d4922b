"""The doctor's page: every command of it, in order, on a real folder with two names."""

import re
import sys
from pathlib import Path

import pytest
from harness.pages import Example, check_shown, examples_in, run_examples, script_of, section

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.tools.doctor.examine import examine
from mq.tools.doctor.findings import Level
from mq.tools.mqctl.exits import ExitCode

PAGE = section("mq/tools/mqctl/MQCTL.md", "doctor: what a disk or mount can promise")
EXAMPLES = examples_in(PAGE)


@pytest.mark.certificate
def test_every_command_says_what_the_page_shows(tmp_path: Path) -> None:
    root, second = tmp_path / "mq", tmp_path / "again"
    second.symlink_to(root)
    script = script_of(EXAMPLES)
    for said, real in (("/srv/mq", root), ("/mnt/mq-again", second)):
        assert f"={said}\n" in script
        script = script.replace(said, str(real))
    mqctl = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}'
    # How a busy machine does is not the page's: it may be a warning there.
    shown = [
        Example(each.commands, tuple(re.sub("^ok\t", "...\t", line) for line in each.lines))
        for each in EXAMPLES
    ]
    outputs = run_examples(f"{mqctl}\n{script}")
    check_shown(shown, [each.replace(str(root), "/srv/mq") for each in outputs])


@pytest.mark.certificate
def test_every_probe_is_told_of(tmp_path: Path) -> None:
    found = examine(str(tmp_path), str(tmp_path), Files(), SystemClock())
    named = set(re.findall(r"`([^`\n]+)`", PAGE))
    for each in found.findings:
        probe, _, across = each.probe.partition(" across")
        assert each.probe in named or (across and probe in named), each.probe


def test_every_level_and_every_exit_code_is_told_of() -> None:
    levels = set(re.findall(r"^\| `([a-z]+)` \| ", PAGE, re.MULTILINE))
    assert levels >= {level.value for level in Level}
    codes = set(re.findall(r"^\| (\d+) \| ", PAGE, re.MULTILINE))
    assert codes == {"0", "1", "2", "5", "130"}
    assert codes <= {str(int(code)) for code in ExitCode}
