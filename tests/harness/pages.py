"""Pages by their sections and their examples, so that each test reads and runs its part."""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[2]
_HEADING = re.compile(r"^## (.+)\n", re.MULTILINE)
_EXAMPLE = re.compile(r"```sh\n(.*?)```\n(?:```\n(.*?)```\n)?", re.DOTALL)
_MARK = "== the next example"
AFTER_EACH = f"printf '\\n{_MARK}\\n'\n"
"""What a script has behind each example, so that `run_examples` can tell their outputs apart."""
CURL = 'curl() { command curl -sS "$@"; echo; }\n'


@dataclass(frozen=True)
class Example:
    """Commands of a page, and the lines of their output that it shows, in order."""

    commands: str
    lines: tuple[str, ...]


def sections_of(text: str) -> dict[str, str]:
    """The text below each second-level heading, in the page's order."""
    _, *parts = _HEADING.split(text)
    return dict(zip(parts[::2], parts[1::2], strict=True))


def section(page: str, *headings: str) -> str:
    """The named sections of a page, joined in the page's order. Raises KeyError."""
    found = sections_of((TOP / page).read_text(encoding="utf-8"))
    if missing := set(headings) - found.keys():
        raise KeyError(f"{page} has no section {missing}")
    return "".join(text for heading, text in found.items() if heading in headings)


def examples_in(text: str) -> list[Example]:
    """The blocks of a shell, each with the block of its output, if one follows."""
    return [
        Example(commands, tuple(shown.splitlines())) for commands, shown in _EXAMPLE.findall(text)
    ]


def script_of(examples: Iterable[Example]) -> str:
    return "".join(f"{each.commands}{AFTER_EACH}" for each in examples)


def run_examples(
    script: str, *, strict: str = "-euo pipefail", env: dict[str, str] | None = None
) -> list[str]:
    """The output of each example of a script. The test fails where the script does."""
    done = subprocess.run(
        ["bash", *strict.split(), "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=env,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split(f"\n{_MARK}\n")[:-1]


def as_shown(line: str) -> "re.Pattern[str]":
    """What a page's line stands for: `...` in it is anything."""
    return re.compile(".*".join(re.escape(part) for part in line.split("...")))


def check_shown(examples: Iterable[Example], outputs: Iterable[str]) -> None:
    """Each output has the lines that its example shows, in order; it may have more."""
    missing = []
    for example, output in zip(examples, outputs, strict=True):
        lines = iter(output.replace("\r", "").splitlines())
        for shown in example.lines:
            pattern = as_shown(shown)
            if not any(pattern.fullmatch(line) for line in lines):
                missing.append(f"{example.commands}shows no more:\n{shown}\nbut:\n{output}")
                break
    assert not missing, "\n\n".join(missing)
