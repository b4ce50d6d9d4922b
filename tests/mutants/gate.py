"""Runs the tests of durability against mutants of the package, each in a checkout of its own."""

import contextlib
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from mutants.orderings import reordered
from mutants.sites import Mutant, left_out

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("mq", "mq_mover", "mq_reaper")
# The first that turns red ends a mutant's run: what is quick comes first.
SUITE = (
    "tests/faults/test_steps.py",
    "tests/faults/test_key_steps.py",
    "tests/faults/test_start.py",
    "tests/faults/test_fsync_errors.py",
    "tests/crash/test_faults.py",
    "tests/store",
    "tests/mq_mover/test_scheduler.py",
    "tests/crash/test_states.py",
)
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "_hypothesis_pytestplugin")
# All take some ten minutes, and longer beside others: a mutant that lives must not pass for
# one that hangs.
PATIENCE_S = 1800.0
_DID_NOT_END = "(did not end)"
REMEMBERED = Path(__file__).parent / "killers.txt"
"""Who killed each mutant the last time, to be asked first: a hint that is wrong costs its time."""


@dataclass(frozen=True)
class Verdict:
    """What the tests said of a mutant."""

    mutant: str
    killer: str
    """The test that turned red first; empty when none did."""
    seconds: float = 0.0

    @property
    def is_killed(self) -> bool:
        return bool(self.killer)


def mutants(words: Sequence[str] = ()) -> list[Mutant]:
    """All of them, or those whose name has all these words."""
    modules = [str(path) for package in PACKAGES for path in sorted(_modules(package))]
    made = [*left_out(CHECKOUT, modules), *reordered(CHECKOUT)]
    return [mutant for mutant in made if all(word in mutant.name for word in words)]


def red_without_a_mutant(verdicts: Sequence[Verdict]) -> str:
    """Which of the tests that killed turns red on the package as it is: then that says nothing.
    Empty: none.
    """
    killers = {verdict.killer for verdict in verdicts if verdict.is_killed} - {_DID_NOT_END}
    return _first_failure(CHECKOUT, sorted(killers)) if killers else ""


def judge(chosen: Sequence[Mutant], threads: int | None = None) -> Iterator[Verdict]:
    """A verdict for each mutant, in their order; several run side by side."""
    with _compiled() as pattern, ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        yield from pool.map(functools.partial(_judge, pattern), chosen)


@contextlib.contextmanager
def _compiled() -> Iterator[Path]:
    """A copy of the packages and the tests in which all modules have been imported once: most of
    what a mutant's run would take is compiling them.
    """
    with tempfile.TemporaryDirectory(prefix="mq-mutants-") as folder:
        pattern = Path(folder)
        for name in (*PACKAGES, "tests"):
            ignored = shutil.ignore_patterns("__pycache__")
            shutil.copytree(CHECKOUT / name, pattern / name, ignore=ignored)
        shutil.copy(CHECKOUT / "pyproject.toml", pattern)
        _run(pattern, ["--collect-only", *SUITE], PYTHONDONTWRITEBYTECODE="")
        yield pattern


def _modules(package: str) -> Iterator[Path]:
    return (path.relative_to(CHECKOUT) for path in (CHECKOUT / package).rglob("*.py"))


def remembered() -> dict[str, str]:
    """The test that killed a mutant, by the mutant's name."""
    lines = REMEMBERED.read_text().splitlines() if REMEMBERED.exists() else []
    return {name: killer for killer, _, name in (line.partition("  ") for line in lines)}


def remember(verdicts: Sequence[Verdict]) -> None:
    """Adds who killed these to what is remembered; what is no mutant any more is forgotten."""
    known = remembered() | {verdict.mutant: verdict.killer for verdict in verdicts}
    names = {mutant.name for mutant in mutants()}
    lines = sorted(f"{killer}  {name}" for name, killer in known.items() if name in names)
    REMEMBERED.write_text("".join(f"{line}\n" for line in lines if line.startswith("tests/")))


def _judge(pattern: Path, mutant: Mutant) -> Verdict:
    with tempfile.TemporaryDirectory(prefix="mq-mutant-") as folder:
        checkout = Path(folder)
        shutil.copytree(pattern, checkout, copy_function=os.link, dirs_exist_ok=True)
        changed = checkout / mutant.module
        compiled = Path(importlib.util.cache_from_source(str(changed)))
        # The pattern's own files, by another name: they are to stay as they are.
        changed.unlink()
        compiled.unlink(missing_ok=True)
        mutant.write(checkout)
        began = time.monotonic()
        killer = ""
        if (hint := remembered().get(mutant.name)) is not None:
            killer = _first_failure(checkout, [hint])
        killer = killer or _first_failure(checkout, SUITE)
        return Verdict(mutant.name, killer, time.monotonic() - began)


def _first_failure(checkout: Path, tests: Sequence[str]) -> str:
    """The test that turns red first; empty when none does, or there is no such test."""
    try:
        done = _run(checkout, ["-x", *tests])
    except subprocess.TimeoutExpired:
        return _DID_NOT_END
    failed = [
        line
        for line in done.stdout.splitlines()
        if line.startswith(("FAILED tests", "ERROR tests"))
    ]
    if done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.USAGE_ERROR):
        return ""
    assert done.returncode == 1, done.stdout[-2000:] + done.stderr
    return failed[0].split(" - ")[0].partition(" ")[2]


def _run(
    checkout: Path, arguments: Sequence[str], **variables: str
) -> "subprocess.CompletedProcess[str]":
    """pytest in a checkout, with the packages that are there."""
    # One process is enough for what seldom is more than one test.
    # Only the plugins that these tests need: a mutant's run is mostly imports.
    plugins = [word for name in PLUGINS for word in ("-p", name)]
    plain = ("-q", "-p", "no:cacheprovider", *plugins)
    command = [sys.executable, "-m", "pytest", *plain, *arguments]
    # Its tests' own tallies are not this gate's.
    env = {name: value for name, value in os.environ.items() if name != "MQ_TALLY"}
    env |= {"PYTHONPATH": str(checkout), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", **variables}
    # Runs that end at a time would take each other's folders away.
    with tempfile.TemporaryDirectory(prefix="mq-gate-", ignore_cleanup_errors=True) as folder:
        return subprocess.run(
            [*command, f"--basetemp={folder}/tests"],
            cwd=checkout,
            env=env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
        )
