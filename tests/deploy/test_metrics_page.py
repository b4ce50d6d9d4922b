"""The page of metrics, the dashboard and the rules: all that they name is in real scrapes."""

import json
import re
import shlex
import subprocess
import urllib.request
from pathlib import Path

import pytest
import yaml
from click import BadParameter
from harness.needs import program
from harness.pages import section
from harness.processes import PATIENCE_S, Process, Processes, eventually
from harness.prometheus import RULES
from harness.scraped import Scraped
from prometheus_client.parser import text_string_to_metric_families

from mq_mover.cli import main as mq_mover
from mq_reaper.cli import main as mq_reaper

DEPLOY = RULES.parents[1]
PAGE = section("deploy/OBSERVE.md", "Metrics", "Alerts")
BOARD = DEPLOY / "grafana" / "mq.json"
ROW = re.compile(r"^\| `([a-z_]+)` \| (counter|gauge|histogram) \| (.*?) \|", re.MULTILINE)
NAMES = re.compile(r"\b(?:mq|process)_[a-z_]+")
ENDS = ("_bucket", "_count", "_sum")
BLOCK = re.compile(r"```sh\n(.*?)```\n(?:```\n(.*?)```\n)?", re.DOTALL)
COMMANDS = {"mq-mover": mq_mover, "mq-reaper": mq_reaper}

Told = dict[str, tuple[str, frozenset[str]]]
"""By its name, the kind and the labels of each metric."""


def told_by_page() -> Told:
    return {
        name: (kind, frozenset(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels in ROW.findall(PAGE)
    }


def told_by(text: str) -> Told:
    return {
        family.name + ("_total" if family.type == "counter" else ""): (
            family.type,
            frozenset(label for sample in family.samples for label in sample.labels) - {"le"},
        )
        for family in text_string_to_metric_families(text)
    }


def page_at(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as response:
        return str(response.read().decode())


def port_of(daemon: Process) -> int:
    return int(daemon.wait_for_log(r"metrics port=(\d+)").group(1))


@pytest.fixture
def told(daemons: Processes, root: Path) -> tuple[Told, Told, Told]:
    """What each of the three daemons tells."""
    mq = daemons.mq(root)
    mover = daemons.mover("--root", str(root), "--metrics", "0")
    reaper = daemons.reaper("--root", str(root), "--metrics", "localhost:0")
    asked = urllib.request.Request(f"{mq.url}/orders", method="PUT")
    urllib.request.urlopen(asked, timeout=PATIENCE_S).close()
    urls = [f"{mq.url}/-/metrics"]
    urls += [f"http://127.0.0.1:{port_of(each)}/metrics" for each in (mover, reaper)]
    mine, movers, reapers = [told_by(page_at(url)) for url in urls]
    return mine, movers, reapers


@pytest.mark.certificate
def test_the_page_has_all_that_is_scraped_and_no_more(told: tuple[Told, Told, Told]) -> None:
    mine, movers, reapers = told
    page = told_by_page()
    assert {name: page.get(name) for name in mine} == mine
    for others in (movers, reapers):
        own = {name: each for name, each in others.items() if not name.startswith("process_")}
        assert {name: page.get(name) for name in own} == own
        assert {name for name in others if name.startswith("process_")} <= set(page)
    assert set(page) == set(mine) | set(movers) | set(reapers)


def names_in(query: str) -> set[str]:
    found = set()
    for name in NAMES.findall(query):
        base = next((name.removesuffix(end) for end in ENDS if name.endswith(end)), name)
        found.add(base if base in told_by_page() else name)
    return found


def test_every_query_is_of_what_there_is() -> None:
    known = set(told_by_page())
    board = json.loads(BOARD.read_text())
    queries = [each["expr"] for panel in board["panels"] for each in panel.get("targets", [])]
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    rules = [rule["expr"] for rule in group["rules"]]
    for query in (*queries, *rules):
        assert names_in(query) <= known, query
    variables = [each["definition"] for each in board["templating"]["list"] if "definition" in each]
    assert set().union(*map(names_in, variables)) <= known
    # And each has its place where people look.
    own = {name for name in known if not name.startswith("process_")}
    assert own <= set().union(*map(names_in, queries))


def test_the_dashboard_is_one() -> None:
    panels = json.loads(BOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [panel["gridPos"] for panel in panels]
    taken = {
        (x, y)
        for place in places
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    }
    assert len(taken) == sum(place["w"] * place["h"] for place in places)
    assert max(x for x, _ in taken) < 24


def test_every_alert_is_told_of() -> None:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    assert {rule["alert"] for rule in group["rules"]} == set(re.findall(r"`(Mq\w+)`", PAGE))


@pytest.mark.certificate
def test_every_command_says_what_the_page_shows(
    daemons: Processes, root: Path, tmp_path: Path
) -> None:
    mq = daemons.mq(root)
    for commands, shown in BLOCK.findall(PAGE):
        if commands.split()[0] in COMMANDS:
            for line in commands.splitlines():
                name, *arguments = shlex.split(line)
                assert COMMANDS[name].make_context(name, arguments).params["metrics"] is not None
            continue
        for name in {"curl", "promtool"} & set(commands.split()):
            program(name)
        script = commands.replace("mq=localhost:8080", f"mq={mq.url}")
        script = script.replace("root=\n", f"root={tmp_path}\n")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", f'curl() {{ command curl -sS "$@"; }}\n{script}'],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            cwd=DEPLOY.parent,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        lines = iter(done.stdout.splitlines())
        for line in shown.splitlines():
            pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
            assert any(map(pattern.fullmatch, lines)), f"{script} shows no {line}: {done.stdout}"


@pytest.mark.certificate
def test_a_port_that_is_taken_ends_a_daemon_with_a_reason(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root)
    for module in ("mq_mover", "mq_reaper"):
        daemon = daemons.start(module, "--root", str(root), "--metrics", str(mq.port))
        daemon.wait_for_log("cannot serve metrics on 127.0.0.1 port")
        assert daemon.popen.wait(PATIENCE_S) == 1


@pytest.mark.certificate
def test_the_environment_says_it_to_those_that_mq_starts(daemons: Processes, root: Path) -> None:
    env = {"MQ_MOVER_METRICS": "0", "MQ_REAPER_METRICS": "127.0.0.1:0"}
    mq = daemons.start("mq", "--root", str(root), "--port", "0", "--standalone", env=env)
    for daemon in ("mq-mover", "mq-reaper"):
        mq.wait_for_log(rf"{daemon}.*metrics port=\d+")


@pytest.mark.parametrize(
    ("said", "place"),
    [
        ("9101", ("127.0.0.1", 9101)),
        (":9101", ("127.0.0.1", 9101)),
        ("10.0.0.1:0", ("10.0.0.1", 0)),
        ("[::1]:65535", ("::1", 65535)),
    ],
)
def test_a_place_is_an_address_and_a_port(said: str, place: tuple[str, int]) -> None:
    for name, command in COMMANDS.items():
        assert command.make_context(name, ["--metrics", said]).params["metrics"] == place


@pytest.mark.parametrize("said", ["", "x", "localhost", "1:x", "65536", "-1", "9101 ", "٩١٠١"])
def test_what_is_no_place_is_refused(said: str) -> None:
    for name, command in COMMANDS.items():
        with pytest.raises(BadParameter):
            command.make_context(name, ["--metrics", said])


@pytest.mark.certificate
def test_a_mover_tells_what_it_moved_and_how_late(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root)
    mover = daemons.mover("--root", str(root), "--metrics", "0")
    reaper = daemons.reaper("--root", str(root), "--metrics", "0")
    for method, path, body in (
        ("PUT", "/orders", None),
        ("POST", "/orders/messages", b"a pizza"),
        ("GET", "/orders/messages?visibility=0.01", None),
    ):
        asked = urllib.request.Request(mq.url + path, data=body, method=method)
        urllib.request.urlopen(asked, timeout=PATIENCE_S).close()

    def scraped(daemon: Process) -> Scraped:
        return Scraped.of(page_at(f"http://127.0.0.1:{port_of(daemon)}/metrics"))

    eventually(
        lambda: scraped(mover)("mq_mover_redeliveries_total", result="delivered") == 1,
        "a message that came back",
    )
    found = scraped(mover)
    assert found("mq_mover_redelivery_late_seconds_count") == 1
    assert found("mq_mover_redelivery_late_seconds_sum") < PATIENCE_S
    eventually(lambda: scraped(mover)("mq_mover_leads") == 1, "a leader")
    later = eventually(
        lambda: (
            (again := scraped(mover))("mq_mover_pass_seconds_count")
            > found("mq_mover_pass_seconds_count")
            and again
        ),
        "more passes",
    )
    last = "mq_mover_last_pass_timestamp_seconds"
    assert later
    assert later(last) >= found(last) > 0
    asked = urllib.request.Request(f"{mq.url}/orders/messages", method="GET")
    with urllib.request.urlopen(asked, timeout=PATIENCE_S) as response:
        path = f"/orders/messages/{response.headers['X-Message-Id']}"
    asked = urllib.request.Request(mq.url + path, method="DELETE")
    urllib.request.urlopen(asked, timeout=PATIENCE_S).close()
    eventually(
        lambda: scraped(reaper)("mq_reaper_unlinked_total", kind="file") == 1, "an unlinked file"
    )
