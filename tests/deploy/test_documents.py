"""All pages together: each is reached from the README, links and flags are real, and what a page
shows to be typed in is read by a test.
"""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from harness.pages import section, sections_of
from harness.processes import Processes

from mq.daemon.cli import main as mq
from mq.tools.mqctl.cli import mqctl
from mq_mover.cli import main as mq_mover
from mq_reaper.cli import main as mq_reaper

TOP = Path(__file__).parents[2]
PAGES = {
    str(path.relative_to(TOP)): path.read_text(encoding="utf-8")
    for top in ("README.md", "CHANGELOG.md", "mq", "deploy", "tests")
    for path in ([TOP / top] if top.endswith(".md") else sorted((TOP / top).rglob("*.md")))
}
TYPED = re.compile(r"^```(?:sh|python|nginx)$", re.MULTILINE)

# Of each page, or section, with something to type in, the test that reads and runs it.
RUN_BY = {
    "README.md": "examples/test_readme.py",
    "deploy/MIGRATE.md": "deploy/test_migrating.py",
    "deploy/OBSERVE.md#Metrics": "deploy/test_metrics_page.py",
    "deploy/OBSERVE.md#Traces": "http/test_traces.py",
    "deploy/OBSERVE.md#Web page": "page/test_serving.py",
    "deploy/OPERATE.md#Daemons": "deploy/test_documents.py",
    "deploy/OPERATE.md#How messages move": "examples/test_operating.py",
    "deploy/OPERATE.md#Sidelines (dead-letter queues) and shovels (redrive)": (
        "examples/test_operating.py"
    ),
    "deploy/OPERATE.md#Archives": "examples/test_operating.py",
    "deploy/OPERATE.md#Troubleshooting": "examples/test_operating.py",
    "deploy/OPERATE.md#systemd": "deploy/test_units.py",
    "deploy/OPERATE.md#Containers": "deploy/test_composition.py",
    "deploy/OPERATE.md#Several machines": "deploy/test_clustering.py",
    "deploy/OPERATE.md#Mounts": "deploy/test_pages.py",
    "deploy/OPERATE.md#Backups": "examples/test_backups.py",
    "deploy/bench/RESULTS.md#Benchmarks": "bench/test_load.py",
    "deploy/CONTRIBUTING.md#Make a release": "deploy/test_release.py",
    "deploy/SECURE.md#Tokens and rights": "examples/test_access.py",
    "deploy/SECURE.md#TLS": "examples/test_tls.py",
    "deploy/SECURE.md#Threat model": "deploy/test_pages.py",
    "mq/CONCEPTS.md": "examples/test_started.py",
    "mq/GETTING_STARTED.md": "examples/test_started.py",
    "mq/client/CLIENT.md": "examples/test_client.py",
    "mq/testing/TESTING.md": "testing/test_fake_page.py",
    "mq/client/worker/WORKER.md": "client/worker/test_worker_page.py",
    "mq/http/HTTP.md": "deploy/test_documents.py",
    "mq/tools/mqctl/MQCTL.md": "examples/test_mqctl.py",
    "mq/spark/PIPELINE.md": "spark/test_pipeline_page.py",
}
COMMANDS: tuple[click.Command, ...] = (mq, mq_mover, mq_reaper, mqctl)
# Flags of other programs that pages name: JuiceFS's; systemd-analyze's; Celery's, beside those of
# `mqctl worker`; of a Spark master; of docker run; of uv.
OTHERS = {
    "--writeback",
    "--threshold",
    "--autoscale",
    "--concurrency",
    "--threads",
    "--host",
    "--read-only",
    "--user",
    "--cap-drop",
    "--upgrade",
}
PROGRAMS = (*(TOP / "deploy" / "bench").rglob("*.py"), *(TOP / "tests" / "examples").rglob("*.py"))


def links(page: str) -> Iterator[str]:
    """What a page's links lead to, but for other sites."""
    for target in re.findall(r"\]\(([^)\s]+)\)", PAGES[page]):
        if "://" not in target:
            yield target


def places(page: str) -> Iterator[tuple[str, str]]:
    """A page that one test reads, or the sections of one that several read; with the text."""
    if not any(place.startswith(f"{page}#") for place in RUN_BY):
        yield page, PAGES[page]
        return
    for heading, text in sections_of(PAGES[page]).items():
        yield f"{page}#{heading}", text


def anchors(page: Path) -> set[str]:
    """Of its headings, as forges make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    for target in links(page):
        path, _, anchor = target.partition("#")
        found = (TOP / page).parent / path if path else TOP / page
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


REFERENCE = re.compile(r'\b(FORMAT|PROTOCOL)\.md`?\)?, ((?:"[^"]+"(?:, | and )?)+)')


def references(text: str) -> Iterator[tuple[str, str]]:
    """The sections of the store's pages that a text names: page and heading."""
    for page, named in REFERENCE.findall(re.sub(r"\s+(?:# )?", " ", text)):
        for heading in re.findall(r'"([^"]+)"', named):
            yield f"{page}.md", heading


@pytest.mark.certificate
def test_a_section_that_code_or_a_page_names_is_a_heading() -> None:
    headings = {
        name: re.findall(r"^#+ (.+)$", PAGES[f"mq/store/{name}"].lower(), re.MULTILINE)
        for name in ("FORMAT.md", "PROTOCOL.md")
    }
    sources = [
        path
        for top in ("mq", "mq_mover", "mq_reaper", "deploy", "tests")
        for kind in ("py", "md", "txt")
        for path in sorted((TOP / top).rglob(f"*.{kind}"))
        if path != Path(__file__)
    ]
    named = {
        (str(path.relative_to(TOP)), *reference)
        for path in sources
        for reference in references(path.read_text(encoding="utf-8"))
    }
    assert len(named) > 50
    assert {each for each in named if each[2].lower() not in headings[each[1]]} == set()


def test_every_page_is_reached_from_the_readme() -> None:
    reached, coming = set(), ["README.md"]
    while coming:
        page = coming.pop()
        if page in reached:
            continue
        reached.add(page)
        for target in links(page):
            path = ((TOP / page).parent / target.partition("#")[0]).resolve()
            coming += [str(path.relative_to(TOP))] if path.suffix == ".md" else []
    assert set(PAGES) - reached == set()


def test_the_page_of_dependencies_has_each_of_them() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"]]
    for extra in ("spark", "connect", "zookeeper", "jwt", "tracing", "typed"):
        needed += extras[extra]
    names = {re.split(r"[\[<>=]", each)[0] for each in needed} - {"mq"}
    tables = "".join(re.findall(r"^\| .*$", PAGES["deploy/CONTRIBUTING.md"], re.MULTILINE))
    named = set(re.findall(r"[\w-]+", tables))
    assert names - named == set()


def test_what_is_to_be_typed_in_is_read_by_a_test() -> None:
    typed = {place for page in PAGES for place, text in places(page) if TYPED.search(text)}
    assert typed == set(RUN_BY)
    for place, test in RUN_BY.items():
        page, _, heading = place.partition("#")
        text = (TOP / "tests" / test).read_text(encoding="utf-8")
        assert Path(page).name in text, test
        assert heading in text, (test, heading)


def flags_of(command: click.Command) -> set[str]:
    """Its own and its commands', each as it is typed in."""
    found = {"--help"}
    for parameter in command.params:
        if getattr(parameter, "hidden", False):
            continue
        found |= {name for name in (*parameter.opts, *parameter.secondary_opts) if name[:2] == "--"}
    if isinstance(command, click.Group):
        for name in command.list_commands(click.Context(command)):
            inner = command.get_command(click.Context(command), name)
            assert inner is not None
            found |= flags_of(inner)
    return found


# `mqctl pipeline` has its flags where Spark is installed.
@pytest.mark.certificate
def test_every_flag_that_a_page_says_is_one() -> None:
    known = OTHERS.union(*map(flags_of, COMMANDS))
    for program in PROGRAMS:
        known |= set(re.findall(r'"(--[a-z-]+)"', program.read_text(encoding="utf-8")))
    unknown = {
        (page, flag)
        for page, text in PAGES.items()
        if page != "CHANGELOG.md"
        for flag in re.findall(r"(?<=`)--[a-z][a-z0-9-]+", text)
        if flag not in known
    }
    assert unknown == set()


def test_the_tables_have_every_flag_of_the_daemons() -> None:
    for daemon in (mq, mq_mover, mq_reaper):
        said = set(re.findall(r"`(--[a-z-]+)", section("deploy/OPERATE.md", "Daemons")))
        assert flags_of(daemon) - said == set(), daemon.name


@pytest.mark.certificate
@pytest.mark.parametrize(
    "text", [PAGES["README.md"], section("deploy/OPERATE.md", "Daemons")], ids=["README", "OPERATE"]
)
def test_the_daemons_that_a_page_begins_run(daemons: Processes, root: Path, text: str) -> None:
    (shown,) = re.findall(r"```sh\n(mq .*?)```", text, re.DOTALL)
    shown = shown.replace("/var/lib/mq", str(root)).replace("8080", "0")
    for line in shown.splitlines():
        name, *flags = line.partition("#")[0].split()
        begun = daemons.start(name.replace("-", "_"), *flags)
        begun.wait_for_log("listening|moving|reaping")


@pytest.mark.certificate
@pytest.mark.usefixtures("curl")
def test_the_page_of_the_interface_is_answered_as_it_says(daemons: Processes, root: Path) -> None:
    """Every command of it, in order: 2xx, or what the comment behind it says."""
    mq = daemons.mq(root)
    shown = re.findall(r"```sh\n(.*?)```", PAGES["mq/http/HTTP.md"], re.DOTALL)
    lines = "".join(shown).replace("\\\n", " ").splitlines()
    assert all(line.startswith("curl ") for line in lines)
    before = """
        command curl -sS -X PUT localhost:8080/orders
        id=$(command curl -sS -d x localhost:8080/orders/messages | grep -o '[0-9a-f-]*-[0-9a-f-]*')
        curl() { command curl -sS -o /dev/null -w '%{stderr}%{http_code}\\n' "$@"; }
    """
    done = subprocess.run(
        [
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f"{before}\n{chr(10).join(lines)}".replace("localhost:8080", mq.url),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    said = [re.search(r"# (\d{3})\b", line) for line in lines]
    for line, expected, answered in zip(lines, said, done.stderr.split(), strict=True):
        assert answered == expected[1] if expected else answered[0] == "2", (line, answered)
