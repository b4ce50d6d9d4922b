"""Every request of the interface, in order, against a real daemon: requests.txt leaves none out."""

import re
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from harness.pages import CURL, Example, check_shown, examples_in, run_examples, script_of
from harness.processes import Processes
from harness.reference import malformed

from mq.http.dispatcher import ROUTES
from mq.protocol.endpoints import ENDPOINTS
from mq.protocol.routes import Routes

PAGE = Path(__file__).with_name("requests.txt").read_text(encoding="utf-8")
REQUEST = re.compile(r"\$mq(?P<path>/[^\s?\"]*)(?:\?(?P<query>[^\s\"]*))?")


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


@pytest.fixture
def outputs(curl: str, daemons: Processes, root: Path, tmp_path: Path) -> list[str]:
    """What each example has said."""
    mq = daemons.mq(root, "--standalone")
    script = script_of(EXAMPLES)
    assert "mq=localhost:8080" in script
    script = script.replace("mq=localhost:8080", f"mq={mq.url}").replace("/tmp/", f"{tmp_path}/")
    return run_examples(CURL + script)


@pytest.mark.certificate
def test_every_example_is_answered_as_shown(outputs: list[str]) -> None:
    check_shown(EXAMPLES, outputs)


def test_every_request_has_an_example() -> None:
    routes = Routes(ROUTES)
    tried = set()
    for method, path, _ in requests(EXAMPLES):
        found = routes.find(re.sub(r"\$\w+", "x", path))
        assert found is not None, path
        tried.add((method, found[0].pattern))
    assert tried >= {(each.method, each.path) for each in ENDPOINTS}


def test_every_parameter_has_an_example() -> None:
    routes = Routes(ROUTES)
    tried = set()
    before, _, _ = PAGE.partition(MALFORMED)
    for method, path, query in requests(examples_in(before)):
        found = routes.find(re.sub(r"\$\w+", "x", path))
        assert found is not None, path
        tried |= {(found[0].pattern, method, name) for name in parse_qs(query)}
    every = {(each.path, each.method, name) for each in ENDPOINTS for name in each.names}
    assert tried >= every


def test_every_type_of_what_is_malformed_has_an_example() -> None:
    shown = set(re.findall(r'"urn:mq:problem:(bad-[a-z-]+)"', PAGE))
    assert shown == malformed()
