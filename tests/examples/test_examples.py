"""HTTP by example: every command of the page, in order, against a real daemon; none is left out."""

import re
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from harness.processes import Processes

import mq.http
from mq.http.routes import ROUTES
from mq.http.routing import Routes

PAGE = Path(mq.http.__file__).with_name("EXAMPLES.md").read_text(encoding="utf-8")
PROBLEMS = Path(mq.http.__file__).with_name("HTTP.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```sh\n(?P<commands>.*?)```\n(?:```\n(?P<answer>.*?)```\n)?", re.DOTALL)
REQUEST = re.compile(r"\$mq(?P<path>/[^\s?\"]*)(?:\?(?P<query>[^\s\"]*))?")
MARK = "== the next example"


@dataclass(frozen=True)
class Example:
    """Commands of the page, and the lines of their output that it shows, in order."""

    commands: str
    lines: tuple[str, ...]


def examples_in(text: str) -> list[Example]:
    return [
        Example(match["commands"], tuple((match["answer"] or "").splitlines()))
        for match in BLOCK.finditer(text)
    ]


EXAMPLES = examples_in(PAGE)
MALFORMED = "## Bad values"


def requests(examples: list[Example]) -> list[tuple[str, str, str]]:
    """Method, path and query of every request of these."""
    found = []
    for example in examples:
        for command in re.findall(r"curl (?:[^\n|]*\\\n)?[^\n|]*", example.commands):
            match = REQUEST.search(command)
            assert match is not None, command
            said = re.search(r"-X (\w+)", command)
            method = "POST" if re.search(r" (-d|--data\S*) ", command) else "GET"
            method = "HEAD" if " -I " in command else said[1] if said else method
            found.append((method, match["path"], match["query"] or ""))
    return found


def as_shown(line: str) -> "re.Pattern[str]":
    return re.compile(".*".join(re.escape(part) for part in line.split("...")))


@pytest.fixture
def outputs(curl: str, daemons: Processes, root: Path, tmp_path: Path) -> list[str]:
    """What each example has said."""
    mq = daemons.mq(root, "--standalone")
    script = "".join(f"{each.commands}printf '\\n{MARK}\\n'\n" for each in EXAMPLES)
    assert "mq=localhost:8080" in script
    script = script.replace("mq=localhost:8080", f"mq={mq.url}").replace("/tmp/", f"{tmp_path}/")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", f'curl() {{ command curl -sS "$@"; echo; }}\n{script}'],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.split(f"\n{MARK}\n")[:-1]


def test_every_example_is_answered_as_the_page_shows(outputs: list[str]) -> None:
    assert len(outputs) == len(EXAMPLES)
    for example, output in zip(EXAMPLES, outputs, strict=True):
        lines = iter(output.splitlines())
        for shown in example.lines:
            pattern = as_shown(shown)
            assert any(pattern.fullmatch(line) for line in lines), (
                f"{example.commands}shows no more:\n{shown}\nbut:\n{output}"
            )


def test_every_request_has_an_example() -> None:
    routes = Routes(ROUTES)
    tried = set()
    for method, path, _ in requests(EXAMPLES):
        found = routes.find(re.sub(r"\$\w+", "x", path))
        assert found is not None, path
        tried.add((method, found[0].pattern))
    assert tried >= {(method, route.pattern) for route in ROUTES for method in route.operations}


def test_every_parameter_has_an_example() -> None:
    routes = Routes(ROUTES)
    tried = set()
    before, _, _ = PAGE.partition(MALFORMED)
    for method, path, query in requests(examples_in(before)):
        found = routes.find(re.sub(r"\$\w+", "x", path))
        assert found is not None, path
        tried |= {(found[0].pattern, method, name) for name in parse_qs(query)}
    every = {
        (route.pattern, method, name)
        for route in ROUTES
        for method, operation in route.operations.items()
        for name in operation.names
    }
    assert tried >= every


def test_every_type_of_what_is_malformed_has_an_example() -> None:
    listed = set(re.findall(r"^\| `(bad-[a-z-]+)` \|", PROBLEMS, re.MULTILINE))
    # A request line that is no HTTP is none that curl sends.
    shown = set(re.findall(r'"urn:mq:problem:(bad-[a-z-]+)"', PAGE))
    assert shown == listed - {"bad-request"}
