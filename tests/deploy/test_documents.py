"""All pages together: each is reached from the README, links and flags are real, and what a page
shows to be typed in is read by a test.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
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

# Of each page with something to type in, the test that takes it from there and runs it.
RUN_BY = {
    "README.md": "examples/test_readme.py",
    "deploy/ACCESS.md": "examples/test_access.py",
    "deploy/CLUSTERING.md": "deploy/test_clustering.py",
    "deploy/DAEMONS.md": "deploy/test_documents.py",
    "deploy/METRICS.md": "deploy/test_metrics_page.py",
    "deploy/MIGRATING.md": "deploy/test_migrating.py",
    "deploy/MOUNTS.md": "deploy/test_pages.py",
    "deploy/OPERATING.md": "examples/test_operating.py",
    "deploy/RELEASING.md": "deploy/test_release.py",
    "deploy/SECURITY.md": "deploy/test_pages.py",
    "deploy/TLS.md": "examples/test_tls.py",
    "deploy/TRACES.md": "http/test_traces.py",
    "deploy/container/CONTAINERS.md": "deploy/test_composition.py",
    "deploy/systemd/SYSTEMD.md": "deploy/test_units.py",
    "mq/client/CLIENT.md": "examples/test_client.py",
    "mq/client/fake/FAKE.md": "client/fake/test_fake_page.py",
    "mq/client/worker/WORKER.md": "client/worker/test_worker_page.py",
    "mq/tools/doctor/DOCTOR.md": "examples/test_doctor.py",
    "mq/tools/fsck/FSCK.md": "examples/test_fsck.py",
    "mq/http/EXAMPLES.md": "examples/test_examples.py",
    "mq/http/HTTP.md": "deploy/test_documents.py",
    "mq/http/page/PAGE.md": "page/test_serving.py",
    "mq/tools/mqctl/MQCTL.md": "examples/test_mqctl.py",
    "mq/spark/PIPELINE.md": "spark/test_pipeline_page.py",
    "mq/spark/jobs/ARCHIVE.md": "spark/jobs/test_archive_page.py",
    "mq/spark/jobs/AUDIT.md": "examples/test_audit.py",
    "mq/spark/jobs/DRAIN.md": "spark/jobs/test_drain_page.py",
    "mq/spark/jobs/HISTORY.md": "spark/jobs/test_history_page.py",
    "mq/spark/jobs/SHOVEL.md": "spark/jobs/test_shovel_page.py",
    # Its commands run these tests themselves.
    "tests/crash/DURABILITY.md": "deploy/test_documents.py",
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


def test_what_is_to_be_typed_in_is_read_by_a_test() -> None:
    assert {page for page, text in PAGES.items() if TYPED.search(text)} == set(RUN_BY)
    for page, test in RUN_BY.items():
        assert Path(page).name in (TOP / "tests" / test).read_text(encoding="utf-8"), test


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
        said = set(re.findall(r"`(--[a-z-]+)", PAGES["deploy/DAEMONS.md"]))
        assert flags_of(daemon) - said == set(), daemon.name


@pytest.mark.parametrize("page", ["README.md", "deploy/DAEMONS.md"])
def test_the_daemons_that_a_page_begins_run(daemons: Processes, root: Path, page: str) -> None:
    (shown,) = re.findall(r"```sh\n(mq .*?)```", PAGES[page], re.DOTALL)
    shown = shown.replace("/var/lib/mq", str(root)).replace("8080", "0")
    for line in shown.splitlines():
        name, *flags = line.partition("#")[0].split()
        begun = daemons.start(name.replace("-", "_"), *flags)
        begun.wait_for_log("listening|moving|reaping")


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
