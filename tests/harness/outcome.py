"""What came of a run of pytest, for the commands of `deploy/check`: `--outcome FILE` writes it."""

import json
from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

# Of a failure's text; its end says what went wrong.
TEXT_MAX = 4000


@dataclass
class Outcome:
    """A run's counts, its failures and where its time went."""

    passed: int = 0
    skipped: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    """The failure's text, by the id of the test, or of the file that could not be collected."""
    seconds: dict[str, float] = field(default_factory=dict)
    """By file of tests, over all workers."""

    @classmethod
    def read(cls, path: Path) -> "Outcome | None":
        """What a run has written; None where it ended before that."""
        try:
            return cls(**json.loads(path.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None


class Recorder:
    """Writes the outcome at a run's end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._counts: Counter[str] = Counter()
        self._failed: dict[str, str] = {}
        self._seconds: defaultdict[str, float] = defaultdict(float)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._failed[report.nodeid] = report.longreprtext[-TEXT_MAX:]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid.partition("::")[0]] += report.duration
        if report.failed:
            self._failed.setdefault(report.nodeid, report.longreprtext[-TEXT_MAX:])
        elif report.skipped:
            self._counts["skipped"] += 1
        elif report.when == "call":
            self._counts["passed"] += 1

    def pytest_terminal_summary(self) -> None:
        outcome = Outcome(
            self._counts["passed"], self._counts["skipped"], self._failed, dict(self._seconds)
        )
        self._path.write_text(json.dumps(asdict(outcome)), encoding="utf-8")
