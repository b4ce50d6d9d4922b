"""Lines of the log, for people and for the journal."""

import contextlib
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from mq.model.log import Logger, logger
from mq.runtime.logs import REPEATED_EVERY_S, REPEATED_LINES, Repeats, configure


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


class Log:
    """What a logger says behind the rule for repeated lines, by a clock of the test."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.said: list[str] = []
        rule = Repeats(lambda: self.now_s)
        self.handler = logging.Handler()
        self.handler.emit = lambda record: self.said.append(record.getMessage())  # type: ignore[method-assign]
        self.handler.addFilter(rule)
        self.log = Logger(logging.Logger("mq-test"))
        self.log.logger.addHandler(self.handler)

    def warn(self, event: str, **fields: object) -> None:
        self.log.warning(event, extra={"fields": fields})


def test_a_repeated_failure_is_logged_at_once_and_then_once_a_minute_with_a_count() -> None:
    log = Log()
    for second in range(150):
        log.now_s = second
        log.warn("a pass failed", error="gone")
    assert log.said == [
        "a pass failed error=gone",
        "a pass failed error=gone left_out=59",
        "a pass failed error=gone left_out=59",
    ]


def test_failures_of_many_messages_are_some_lines_a_minute() -> None:
    log = Log()
    for number in range(1000):
        log.warn("could not redeliver a message", name=number)
    assert log.said == [
        f"could not redeliver a message name={number}" for number in range(REPEATED_LINES)
    ]
    log.warn("another failure")
    assert log.said[-1] == "another failure"
    log.now_s = REPEATED_EVERY_S
    log.warn("could not redeliver a message", name="next")
    assert log.said[-1] == f"could not redeliver a message name=next left_out={995}"


def test_what_is_no_failure_is_logged_each_time() -> None:
    log = Log()
    for _ in range(3):
        log.log.info("started")
    assert log.said == ["started"] * 3


def test_a_repeated_line_with_arguments_has_its_count(capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    for second in (0, 1, REPEATED_EVERY_S):
        log.now_s = second
        log.log.logger.error("cannot %s", "listen")
    assert log.said == ["cannot listen", "cannot listen left_out=1"]
