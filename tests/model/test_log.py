"""Messages that say their fields."""

import io
import logging

import pytest

from mq.model.log import logger


def test_any_formatter_shows_the_fields() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(logging.BASIC_FORMAT))
    log = logging.getLogger("mq.test_log")
    log.addHandler(handler)
    try:
        logger("mq.test_log").warning("a 100% loss", extra={"fields": {"queue": "q", "of": "a b"}})
    finally:
        log.removeHandler(handler)
    assert stream.getvalue() == 'WARNING:mq.test_log:a 100% loss queue=q of="a b"\n'


def test_a_record_names_the_line_that_logs(caplog: pytest.LogCaptureFixture) -> None:
    logger("mq").warning("lost", extra={"fields": {"queue": "q"}})
    [record] = caplog.records
    assert (record.funcName, vars(record)["fields"]) == (
        "test_a_record_names_the_line_that_logs",
        {"queue": "q"},
    )
