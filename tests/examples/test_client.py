"""The client's page: every program of it, in order, as one program, against a real mq."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from harness.processes import Processes

import mq.client

PAGE = Path(mq.client.__file__).with_name("CLIENT.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```python\n(?P<program>.*?)```\n(?:```\n(?P<said>.*?)```\n)?", re.DOTALL)
MARK = "== the next example"


@dataclass(frozen=True)
class Example:
    """A program of the page, and the lines that it shows."""

    program: str
    lines: tuple[str, ...]


def examples() -> list[Example]:
    return [
        Example(each["program"], tuple((each["said"] or "").splitlines()))
        for each in BLOCK.finditer(PAGE)
    ]


def as_shown(line: str) -> "re.Pattern[str]":
    return re.compile(".*".join(re.escape(part) for part in line.split("...")))


def test_every_example_prints_what_the_page_shows(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root, "--standalone")
    found = examples()
    assert len(found) == PAGE.count("```python")
    program = f"\nprint({MARK!r})\n".join(each.program for each in found)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program.replace("http://localhost:8080", mq.url)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    said = done.stdout.split(f"{MARK}\n")
    for example, lines in zip(found, said, strict=True):
        shown = [as_shown(line) for line in example.lines]
        printed = lines.splitlines()
        assert len(printed) == len(shown), f"{example.program}\nsays\n{lines}"
        for pattern, line in zip(shown, printed, strict=True):
            assert pattern.fullmatch(line), f"{example.program}\nsays\n{line}"
