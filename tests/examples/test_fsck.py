"""The page of fsck: every command of it, in order, on a root of its own."""

import subprocess
import sys
from pathlib import Path

import mq.tools.fsck
from mq.tools.fsck.command import fsck

from .test_examples import as_shown, examples_in

PAGE = Path(mq.tools.fsck.__file__).with_name("FSCK.md").read_text(encoding="utf-8")
ROOT = "/tmp/mq-fsck"
EXAMPLES = examples_in(PAGE)
MARK = "== the next example"


def test_every_command_says_what_the_page_shows(tmp_path: Path) -> None:
    root = str(tmp_path / "root")
    script = "".join(f"{each.commands}printf '\\n{MARK}\\n'\n" for each in EXAMPLES)
    assert f"root={ROOT}\n" in script
    beginning = (
        f'mqctl() {{ {sys.executable} -m mq.tools.mqctl "$@"; }}\n'
        f'python() {{ {sys.executable} "$@"; }}\n'
    )
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", beginning + script.replace(ROOT, root)],
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
            pattern = as_shown(shown.replace(ROOT, root))
            assert any(pattern.fullmatch(line) for line in lines), (
                f"{example.commands}shows no more:\n{shown}\nbut:\n{output}"
            )


def test_every_flag_is_told_of() -> None:
    for option in fsck.params:
        for name in option.opts:
            assert not name.startswith("--") or f"{name}" in PAGE, name
