"""The doctor's page: every command of it, in order, on a real folder with two names."""

import re
import subprocess
import sys
from pathlib import Path

from examples.test_examples import as_shown, examples_in

import mq.tools.doctor
from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.tools.doctor.examine import examine
from mq.tools.doctor.findings import Level
from mq.tools.mqctl.exits import ExitCode

PAGE = Path(mq.tools.doctor.__file__).with_name("DOCTOR.md").read_text(encoding="utf-8")
MARK = "== the next example"
EXAMPLES = examples_in(PAGE)


def test_every_command_says_what_the_page_shows(tmp_path: Path) -> None:
    root, second = tmp_path / "mq", tmp_path / "again"
    second.symlink_to(root)
    script = "".join(f"{each.commands}printf '\\n{MARK}\\n'\n" for each in EXAMPLES)
    for said, real in (("/srv/mq", root), ("/mnt/mq-again", second)):
        assert f"={said}\n" in script
        script = script.replace(said, str(real))
    mqctl = f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}'
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f"{mqctl}\n{script}"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = done.stdout.split(f"\n{MARK}\n")[:-1]
    for example, output in zip(EXAMPLES, outputs, strict=True):
        lines = iter(output.splitlines())
        for shown in example.lines:
            # How a busy machine does is not the page's: it may be a warning there.
            line = re.sub("^ok\t", "...\t", shown.replace("/srv/mq", str(root)))
            pattern = as_shown(line)
            assert any(pattern.fullmatch(line) for line in lines), (
                f"{example.commands}shows no more:\n{shown}\nbut:\n{output}"
            )


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
