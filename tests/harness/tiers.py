"""The tiers of `deploy/check`, as pytest plugins. deploy/CONTRIBUTING.md describes them.

`--tier check` selects what an ordinary user can run in minutes: no root, no mounts, no program
outside of Python. `--tier certificate` selects the rest, `--part NAME` one part of it
(`parts.py`), and `--tier sample` two minutes of it. Without the option pytest runs all that it is
given. `--within SECONDS` begins no test later than that.
"""

import functools
import importlib.util
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from harness.parts import SAMPLE, part_of

TESTS = Path(__file__).parents[1]

# Folders and modules of the certificate; a test elsewhere joins it by the mark `certificate` or
# `needs_root`. Collecting these may need packages that the extra `test` does not have.
CERTIFICATE = (
    "bench/",
    "client/consuming/test_consumer_and_kills.py",
    "client/worker/test_reporting.py",
    "client/worker/test_worker_typing.py",
    "cluster/test_active_consumer.py",
    "cluster/test_delivery_limits.py",
    "cluster/test_groups.py",
    "cluster/test_interest.py",
    "cluster/test_metrics.py",
    "cluster/test_one_port.py",
    "cluster/test_two_faces.py",
    "cluster/test_waiting.py",
    "conformance/test_access_flags.py",
    "conformance/test_modes.py",
    "conformance/test_ways_in.py",
    "crash/",
    "deploy/test_alerts.py",
    "deploy/test_apart.py",
    "deploy/test_composition.py",
    "deploy/test_containers.py",
    "deploy/test_image.py",
    "deploy/test_migrating.py",
    "deploy/test_new_user.py",
    "deploy/test_release.py",
    "deploy/test_units.py",
    "examples/migrate/",
    "examples/test_backups.py",
    "examples/test_client.py",
    "examples/test_consuming.py",
    "examples/test_started.py",
    "faults/test_every_",
    "faults/test_few_descriptors.py",
    "faults/test_kill_at_every_call.py",
    "fuzz/",
    "histories/",
    "mutants/",
    "nfs/",
    "openapi/test_schemathesis.py",
    "page/",
    "spark/",
    "sqs/",
    "store/core/test_trust.py",
    "store/disk/test_flush_disks.py",
    "store/shovel/test_run_beginning.py",
    "tools/fsck/test_watching.py",
)
# Spark's quickest tests need no JVM. They are part of the check as well where pyspark is installed.
QUICK_ON_SPARK = (
    "spark/test_options.py",
    "spark/test_partitions.py",
    "spark/test_publishing.py",
    "spark/test_streaming.py",
)
MARKS = ("certificate", "needs_root")
# Not part of the coverage: other tests take their branches too, and measuring doubles its cost.
UNMEASURED = ("broker/test_broker_model.py",)


def in_certificate(path: str) -> bool:
    """Whether all tests of a module are: a path below `tests/`."""
    return path.startswith(CERTIFICATE)


def in_check(path: str) -> bool:
    """Whether `--tier check` collects a module: a path below `tests/`."""
    if path in QUICK_ON_SPARK:
        return importlib.util.find_spec("pyspark") is not None
    return not in_certificate(path)


def _has_quick_tests(folder: str) -> bool:
    return any(path.startswith(f"{folder}/") and in_check(path) for path in QUICK_ON_SPARK)


def _may_have_a_mark(module: Path) -> bool:
    """Whether the module names one, or the modules do that the tests of its folder share."""
    folder = TESTS / module.relative_to(TESTS).parts[0]
    return _names_a_mark(module) or (folder.is_dir() and any(map(_names_a_mark, _shared(folder))))


@functools.cache
def _shared(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*.py") if not path.name.startswith("test_")]


@functools.cache
def _names_a_mark(module: Path) -> bool:
    text = module.read_text(encoding="utf-8")
    return any(mark in text for mark in MARKS)


class Tiers:
    """Collects what the tier has, and says how long each folder took."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._tier = config.getoption("--tier")
        self._part = config.getoption("--part")
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        if self._tier is None or not collection_path.is_relative_to(TESTS):
            return None
        path = collection_path.relative_to(TESTS).as_posix()
        if self._tier == "sample":
            if collection_path.is_dir():
                return None if any(each.startswith(f"{path}/") for each in SAMPLE) else True
            is_module = collection_path.suffix == ".py" and collection_path.name != "conftest.py"
            return True if is_module and not any(each.startswith(path) for each in SAMPLE) else None
        if self._part is not None and collection_path.suffix == ".py":
            part = part_of(path)
            if part is None or part.name != self._part:
                return True
        if self._tier == "certificate":
            # Importing all modules takes longer than looking for a mark in those without one.
            is_passed_over = collection_path.suffix == ".py" and not (
                in_certificate(path) or _may_have_a_mark(collection_path)
            )
            return True if is_passed_over else None
        if collection_path.is_dir():
            # Whole, as a folder's conftest.py may import what only the certificate has.
            return True if f"{path}/" in CERTIFICATE and not _has_quick_tests(path) else None
        return None if in_check(path) or collection_path.name == "conftest.py" else True

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self._config.pluginmanager.hasplugin("_cov"):
            for item in items:
                if item.path.relative_to(TESTS).as_posix() in UNMEASURED:
                    item.add_marker("no_cover")
        if self._tier is None:
            return
        kept, others = [], []
        for item in items:
            (kept if self._has(item) else others).append(item)
        items[:] = kept
        self._config.hook.pytest_deselected(items=others)

    def _has(self, item: pytest.Item) -> bool:
        path = item.path.relative_to(TESTS).as_posix()
        marked = any(item.get_closest_marker(mark) for mark in MARKS)
        if self._tier == "check":
            return in_check(path) and not marked
        if self._tier == "sample":
            return item.nodeid.removeprefix("tests/").startswith(SAMPLE)
        return in_certificate(path) or marked

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """How long each folder took, where a whole tier ran."""
        if self._tier is None:
            return
        folders: defaultdict[str, float] = defaultdict(float)
        for path, seconds in self._seconds.items():
            folders[str(Path(path).parent)] += seconds
        terminalreporter.section("seconds by folder, over all workers")
        for folder, seconds in sorted(folders.items(), key=lambda each: -each[1]):
            terminalreporter.write_line(f"{seconds:8.1f} {folder}")
        terminalreporter.write_line(f"{sum(folders.values()):8.1f} in all")
        if self._tier == "check" and not in_check(QUICK_ON_SPARK[0]):
            terminalreporter.write_line(
                "Left out: Spark's quick tests. pip install -e '.[test,spark]' brings them."
            )


class Within:
    """Begins no test when the time is up; the summary says how many were left."""

    def __init__(self, config: pytest.Config, seconds: float) -> None:
        self._config = config
        self._end = time.monotonic() + seconds
        self._left: list[str] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool | None:
        if time.monotonic() < self._end:
            return None
        self._left.append(item.nodeid)
        return True

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput["left"] = self._left

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """What a worker of pytest-xdist had no time for."""
        self._left += getattr(node, "workeroutput", {}).get("left", [])

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._left:
            modules = len({name.partition("::")[0] for name in self._left})
            terminalreporter.write_line(
                f"No time was left for {len(self._left)} tests of {modules} modules;"
                " deploy/check runs them."
            )
