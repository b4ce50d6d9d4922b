"""Lines of the log, for people and for the journal."""

import logging

import pytest

from mq.logs import configure


@pytest.mark.parametrize(
    ("level", "number"),
    [(logging.DEBUG, 7), (logging.INFO, 6), (logging.WARNING, 4), (logging.ERROR, 3)],
)
def test_the_journal_is_told_the_priority_and_no_time(
    level: int, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = logging.getLogger().handlers[:], logging.getLogger().level
    try:
        configure("journal", "debug", {"process": 1})
        logging.getLogger("mq").log(level, "two\nlines", extra={"fields": {"root": "/a b"}})
    finally:
        logging.getLogger().handlers[:], logging.getLogger().level = kept
    assert capsys.readouterr().err == f'<{number}>mq: two\\nlines root="/a b" process=1\n'
