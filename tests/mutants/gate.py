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
from queue import SimpleQueue

import pytest

from mutants.orderings import reordered
from mutants.sites import Mutant, left_out
from mutants.warm import Run, Warm

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("mq", "mq_mover", "mq_reaper")
# What these flush is no message: probes and a daemon's pulse, which promise nothing, and the jobs'
# own folders, of which the jobs' own tests cut the power.
ELSEWHERE = (Path("mq/doctor"), Path("mq/daemon.py"), Path("mq/spark/jobs"))
# The first that turns red ends a mutant's run: what is quick comes first.
SUITE = (
    "tests/faults/test_calls.py",
    "tests/faults/test_key_steps.py",
    "tests/faults/test_start.py",
    "tests/faults/test_fsync_errors.py",
    "tests/crash/test_faults.py",
    "tests/store",
    "tests/mq_mover/test_scheduler.py",
    "tests/crash/test_states.py",
)
# Only the plugins that these tests need: a mutant's run is mostly imports.
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "_hypothesis_pytestplugin")
PLUGIN_WORDS = tuple(word for name in PLUGINS for word in ("-p", name))
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
    """Which of the tests that killed turns red on the package as it is, run in the same way: then
    that says nothing. Empty: none.
    """
    killers = {verdict.killer for verdict in verdicts if verdict.is_killed} - {_DID_NOT_END}
    if not killers:
        return ""
    with _warm(CHECKOUT) as warm:
        return _first_failure(warm, CHECKOUT, sorted(killers))


def judge(chosen: Sequence[Mutant], threads: int | None = None) -> Iterator[Verdict]:
    """A verdict for each mutant, in their order; several run side by side."""
    count = threads or os.cpu_count() or 1
    with _compiled() as pattern, contextlib.ExitStack() as stack:
        idle: SimpleQueue[Warm] = SimpleQueue()
        for _ in range(count):
            idle.put(stack.enter_context(_warm(pattern)))
        pool = stack.enter_context(ThreadPoolExecutor(count))
        yield from pool.map(functools.partial(_judge, pattern, idle), chosen)


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
        _compile(pattern)
        yield pattern


def _compile(pattern: Path) -> None:
    """Imports all modules once."""
    collect = ["-p", "no:cacheprovider", *PLUGIN_WORDS, "--collect-only", "-q", *SUITE]
    subprocess.run(
        [sys.executable, "-m", "pytest", *collect],
        cwd=pattern,
        env=_environment() | {"PYTHONPATH": str(pattern), "PYTHONDONTWRITEBYTECODE": ""},
        stdout=subprocess.DEVNULL,
        timeout=PATIENCE_S,
        check=True,
    )


def _modules(package: str) -> Iterator[Path]:
    found = (path.relative_to(CHECKOUT) for path in (CHECKOUT / package).rglob("*.py"))
    return (path for path in found if not any(each in (path, *path.parents) for each in ELSEWHERE))


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


def _judge(pattern: Path, idle: "SimpleQueue[Warm]", mutant: Mutant) -> Verdict:
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
        warm = idle.get()
        try:
            if (hint := remembered().get(mutant.name)) is not None:
                killer = _first_failure(warm, checkout, [hint])
            killer = killer or _first_failure(warm, checkout, SUITE)
        finally:
            idle.put(warm)
        return Verdict(mutant.name, killer, time.monotonic() - began)


def _first_failure(warm: Warm, checkout: Path, tests: Sequence[str]) -> str:
    """The test that turns red first; empty when none does, or there is no such test."""
    # One process is enough for what seldom is more than one test.
    words = ["-q", "-p", "no:cacheprovider", *PLUGIN_WORDS, "-x", *tests]
    # Runs that end at a time would take each other's folders away.
    with tempfile.TemporaryDirectory(prefix="mq-gate-", ignore_cleanup_errors=True) as folder:
        ran = warm.run(Run(str(checkout), [*words, f"--basetemp={folder}/tests"], PATIENCE_S))
    if ran.code is None:
        return _DID_NOT_END
    if ran.code in (pytest.ExitCode.OK, pytest.ExitCode.USAGE_ERROR):
        return ""
    failed = [
        line for line in ran.said.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))
    ]
    assert ran.code == 1, ran.said[-2000:]
    return failed[0].split(" - ")[0].partition(" ")[2]


def _environment() -> dict[str, str]:
    """That of pytest, with the plugins that it is told of. Their tallies are not the gate's."""
    env = {name: value for name, value in os.environ.items() if name != "MQ_TALLY"}
    return env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _warm(checkout: Path) -> Warm:
    return Warm(checkout, [*PLUGIN_WORDS, *SUITE], _environment())
