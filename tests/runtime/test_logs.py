"""Lines of the log, for people and for the journal."""

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from mq.model.log import Logger, logger
from mq.runtime.logs import configure


@contextlib.contextmanager
def configured(*said: Any) -> Iterator[Logger]:
    kept = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        configure(*said)
        yield logger("mq")
    finally:
        logging.getLogger().handlers[:], logging.getLogger().level = kept


@pytest.mark.parametrize(
    ("level", "number"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3)],
)
def test_the_journal_is_told_the_priority_and_no_time(
    level: int, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with configured("journal", "debug", {"process": 1}) as log:
        log.log(level, "two\nlines", extra={"fields": {"root": "/a b"}})
    assert capsys.readouterr().err == f'<{number}>mq: two\\nlines root="/a b" process=1\n'


def test_a_line_that_says_its_facts_does_not_say_them_twice(
    capsys: pytest.CaptureFixture[str],
) -> None:
    for log_format in ("human", "json"):
        with configured(log_format) as log:
            log.logger.warning("a of %s", "q", extra={"fields": {"queue": "q"}})
    human, printed = capsys.readouterr().err.splitlines()
    assert human.endswith("mq: a of q")
    assert (json.loads(printed)["event"], json.loads(printed)["queue"]) == ("a of q", "q")


@pytest.mark.parametrize("log_format", ["human", "journal"])
def test_a_trace_has_lines_of_its_own(log_format: str, capsys: pytest.CaptureFixture[str]) -> None:
    with configured(log_format) as log:
        try:
            raise ValueError("first\nsecond")
        except ValueError:
            log.exception("failed")
    first, *trace = capsys.readouterr().err.splitlines()
    assert first.endswith("mq: failed")
    assert [each.removeprefix("<3>").rstrip() for each in trace[-2:]] == [
        "  ValueError: first",
        "  second",
    ]
    assert all(each.removeprefix("<3>").startswith("  ") for each in trace)
