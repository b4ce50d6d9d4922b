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
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import SimpleQueue

import pytest

from mutants.callers import FILE, Callers
from mutants.exemptions import EXEMPT, living
from mutants.killers import Killers
from mutants.named import made_by_name
from mutants.rules import made_by_rules
from mutants.syntax import Mutant
from mutants.warm import Run, Warm

CHECKOUT = Path(__file__).parents[2]
PACKAGES = ("mq", "mq_mover", "mq_reaper")
# What these flush is no message: probes and a daemon's pulse, which promise nothing, and the jobs'
# own folders, of which the jobs' own tests cut the power.
ELSEWHERE = (Path("mq/tools/doctor"), Path("mq/daemon/daemon.py"), Path("mq/spark/jobs"))
# All that may kill. The first that turns red ends a mutant's run: what is quick comes first.
SUITE = (
    "tests/faults/test_calls.py",
    "tests/faults/test_key_steps.py",
    "tests/faults/test_locks.py",
    "tests/faults/test_store_locks.py",
    "tests/faults/test_start.py",
    "tests/faults/test_fsync_errors.py",
    "tests/faults/test_gone_or_failed.py",
    "tests/crash/test_faults.py",
    "tests/store",
    "tests/faults/test_lost_answers.py",
    "tests/faults/test_missing_folders.py",
    "tests/faults/test_refused_writes.py",
    "tests/faults/test_folders_of_the_root.py",
    "tests/coordination/test_opening.py",
    "tests/coordination/test_file.py",
    "tests/tools/mqctl/test_inbox.py",
    "tests/tools/mqctl/test_token_file.py",
    "tests/mq_mover",
    "tests/mq_reaper",
    "tests/tools/fsck",
    "tests/conformance",
    "tests/nfs/test_lost_replies.py",
    "tests/nfs/test_deleted_queues.py",
    "tests/faults/test_every_call.py",
    "tests/faults/test_every_upkeep_call.py",
    "tests/faults/test_every_archive_call.py",
    "tests/faults/test_every_firing_call.py",
    "tests/faults/test_every_fsck_call.py",
    "tests/crash/test_states.py",
)
# Only the plugins that these tests need: a mutant's run is mostly imports.
PLUGINS = ("pytest_asyncio.plugin", "pytest_timeout", "_hypothesis_pytestplugin")
PLUGIN_WORDS = tuple(word for name in PLUGINS for word in ("-p", name))
# All take some ten minutes, and longer on a busy machine.
PATIENCE_S = 1800.0
_DID_NOT_END = "(did not end)"


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


def mutants(words: Sequence[str] = (), changed: Collection[str] | None = None) -> list[Mutant]:
    """All that are to be killed; or those whose name has all these words, of the modules that are
    `changed`.
    """
    passed_over = {*EXEMPT, *living()}
    found = [mutant for mutant in all_mutants() if mutant.name not in passed_over]
    return chosen_of(found, words, changed)


def chosen_of(
    found: Iterable[Mutant], words: Sequence[str], changed: Collection[str] | None
) -> list[Mutant]:
    """Those whose name has all these words, of the modules that are `changed`; None: of any."""
    some = (mutant for mutant in found if changed is None or mutant.module in changed)
    return [mutant for mutant in some if all(word in mutant.name for word in words)]


@functools.cache
def all_mutants() -> tuple[Mutant, ...]:
    """Those that are exempt, too."""
    modules = [str(path) for package in PACKAGES for path in sorted(_modules(package))]
    return (*made_by_rules(CHECKOUT, modules), *made_by_name(CHECKOUT))


def modules_changed(base: str) -> list[str]:
    """The paths in the checkout that differ from where the two histories parted. Raises
    CalledProcessError where git knows no such base.
    """
    fork = _git("merge-base", base, "HEAD").strip()
    new = _git("ls-files", "--others", "--exclude-standard")
    return [*_git("diff", "--name-only", fork).splitlines(), *new.splitlines()]


def _git(*words: str) -> str:
    ran = subprocess.run(["git", *words], cwd=CHECKOUT, capture_output=True, text=True, check=True)
    return ran.stdout


def red_without_a_mutant(verdicts: Sequence[Verdict]) -> str:
    """Which of the tests that killed turns red on the package as it is, run in the same way: then
    that says nothing. Empty: none.
    """
    killers = {verdict.killer for verdict in verdicts if verdict.is_killed} - {_DID_NOT_END}
    if not killers:
        return ""
    with _warm(CHECKOUT) as warm:
        return _first_failure(warm, CHECKOUT, sorted(killers))


def _all_tests(_: Mutant) -> Sequence[str]:
    return SUITE


def judge(
    chosen: Sequence[Mutant],
    threads: int | None = None,
    at_last: Callable[[Mutant], Sequence[str]] = _all_tests,
    needs_remembered: bool = False,
) -> Iterator[Verdict]:
    """A verdict for each mutant, in their order; several run side by side. Who has killed it, or
    others of its function or its module, is asked first; then those that `at_last` says. With
    `needs_remembered`, raises LookupError before the first run where a remembered killer is gone.
    """
    count = threads or os.cpu_count() or 1
    with _copied() as pattern, contextlib.ExitStack() as stack:
        idle: SimpleQueue[tuple[Warm, Path]] = SimpleQueue()
        for _ in range(count):
            warm = stack.enter_context(_warm(pattern))
            idle.put((warm, stack.enter_context(_linked(pattern))))
        killers = Killers.read(warm.tests)
        if needs_remembered and killers.gone:
            gone = "\n".join(f"{killer}  {name}" for killer, name in killers.gone.items())
            raise LookupError(f"python -m mutants --remember looks for killers instead of:\n{gone}")
        pool = stack.enter_context(ThreadPoolExecutor(count))
        yield from pool.map(functools.partial(_judge, pattern, idle, killers, at_last), chosen)


@contextlib.contextmanager
def _copied() -> Iterator[Path]:
    """A copy of the packages and the tests, which stays as it is whatever is edited meanwhile; with
    what is compiled of them.
    """
    with tempfile.TemporaryDirectory(prefix="mq-mutants-") as folder:
        pattern = Path(folder)
        for name in (*PACKAGES, "tests"):
            shutil.copytree(CHECKOUT / name, pattern / name)
        shutil.copy(CHECKOUT / "pyproject.toml", pattern)
        yield pattern


@contextlib.contextmanager
def _linked(pattern: Path) -> Iterator[Path]:
    """A checkout of the pattern's own files, by other names."""
    with tempfile.TemporaryDirectory(prefix="mq-mutant-") as folder:
        checkout = Path(folder)
        shutil.copytree(pattern, checkout, copy_function=os.link, dirs_exist_ok=True)
        yield checkout


@contextlib.contextmanager
def _mutated(pattern: Path, checkout: Path, mutant: Mutant) -> Iterator[None]:
    """The checkout has the mutant until the block ends."""
    changed = checkout / mutant.module
    compiled = Path(importlib.util.cache_from_source(str(changed)))

    def clear() -> None:
        changed.unlink()
        compiled.unlink(missing_ok=True)

    # The pattern's own files are to stay as they are.
    clear()
    mutant.write(checkout)
    try:
        yield
    finally:
        clear()
        os.link(pattern / mutant.module, changed)


def _modules(package: str) -> Iterator[Path]:
    found = (path.relative_to(CHECKOUT) for path in (CHECKOUT / package).rglob("*.py"))
    return (path for path in found if not any(each in (path, *path.parents) for each in ELSEWHERE))


def _judge(
    pattern: Path,
    idle: "SimpleQueue[tuple[Warm, Path]]",
    killers: Killers,
    at_last: Callable[[Mutant], Sequence[str]],
    mutant: Mutant,
) -> Verdict:
    began = time.monotonic()
    killer = ""
    warm, checkout = idle.get()
    try:
        with _mutated(pattern, checkout, mutant):
            for tests in (*killers.to_ask(mutant), at_last(mutant)):
                killer = killer or (_first_failure(warm, checkout, tests, mutant) if tests else "")
    finally:
        idle.put((warm, checkout))
    killers.learn(mutant, killer)
    return Verdict(mutant.name, killer, time.monotonic() - began)


def _first_failure(
    warm: Warm, checkout: Path, tests: Sequence[str], mutant: Mutant | None = None
) -> str:
    """The test that turns red first; empty when none does, or there is no such test."""
    # One process is enough for what seldom is more than one test.
    words = ["-q", "--tb=no", "-p", "no:cacheprovider", *PLUGIN_WORDS, "-x", *tests]
    # Runs that end at a time would take each other's folders away.
    with tempfile.TemporaryDirectory(prefix="mq-gate-", ignore_cleanup_errors=True) as folder:
        words.append(f"--basetemp={folder}/tests")
        run = Run(str(checkout), words, PATIENCE_S)
        if mutant is not None:
            run = replace(run, module=mutant.module, function=mutant.function)
        ran = warm.run(run)
    if ran.code is None:
        return _DID_NOT_END
    if ran.code in (pytest.ExitCode.OK, pytest.ExitCode.USAGE_ERROR):
        return ""
    failed = [
        line for line in ran.said.splitlines() if line.startswith(("FAILED tests", "ERROR tests"))
    ]
    assert ran.code == 1, ran.said[-2000:]
    return failed[0].split(" - ")[0].partition(" ")[2]


def callers_of(file: Path) -> Callable[[Mutant], Sequence[str]]:
    """The tests that call what is changed, as the file says; it is written where it is missing."""
    if not file.exists():
        _record_callers(file)
    callers = Callers.read(file)
    return lambda mutant: callers.of(mutant) if mutant.function else SUITE


def _record_callers(file: Path) -> None:
    """Runs all tests once, and keeps which functions each has called."""
    words = ["-q", "-p", "no:cacheprovider", *PLUGIN_WORDS, "-p", "mutants.callers", *SUITE]
    env = _environment() | {FILE: str(file.absolute()), "PYTHONPATH": str(CHECKOUT / "tests")}
    subprocess.run([sys.executable, "-m", "pytest", *words], cwd=CHECKOUT, env=env, check=True)


def _environment() -> dict[str, str]:
    """That of pytest, with the plugins that it is told of. Their tallies are not the gate's. What
    is imported is compiled for those that import it anew.
    """
    left_out = ("MQ_TALLY", "PYTHONDONTWRITEBYTECODE")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    return env | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def _warm(checkout: Path) -> Warm:
    return Warm(checkout, [*PLUGIN_WORDS, *SUITE], _environment())
