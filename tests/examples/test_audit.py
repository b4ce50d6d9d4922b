"""The page of the audit: every command of it, on a root of its own; and its exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest

import mq.spark.jobs
from mq.spark.commands.audit import audit

from .test_examples import as_shown, examples_in

PAGE = Path(mq.spark.jobs.__file__).with_name("AUDIT.md").read_text(encoding="utf-8")
EXAMPLES = examples_in(PAGE)
MARK = "== the next example"


@pytest.mark.certificate
def test_every_command_says_what_the_page_shows(tmp_path: Path) -> None:
    script = "".join(f"{each.commands}printf '\\n{MARK}\\n'\n" for each in EXAMPLES)
    beginning = (
        f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@" --master "local[2]"; }}\n'
        f'python() {{ {sys.executable} "$@"; }}\n'
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", beginning + script.replace("/tmp/", f"{tmp_path}/")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    outputs = done.stdout.split(f"\n{MARK}\n")[:-1]
    for example, output in zip(EXAMPLES, outputs, strict=True):
        lines = iter(output.splitlines())
        for shown in example.lines:
            pattern = as_shown(shown.replace("/tmp/", f"{tmp_path}/"))
            assert any(pattern.fullmatch(line) for line in lines), (
                f"{example.commands}shows no more:\n{shown}\nbut:\n{output}"
            )


def test_every_flag_is_told_of() -> None:
    for option in audit.params:
        for name in option.opts:
            assert not name.startswith("--") or name in PAGE, name


@pytest.mark.parametrize(
    "arguments", [("--root", "/nowhere"), ("--root", "/"), ("--root", "/", "--queue", "a b"), ()]
)
def test_what_cannot_be_looked_at_ends_with_2(arguments: tuple[str, ...]) -> None:
    command = [sys.executable, "-m", "mq.tools.mqctl", "pipeline", "audit", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr
