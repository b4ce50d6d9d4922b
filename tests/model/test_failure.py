"""Failures of any text fit what is kept, and one line shows them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.failure import FAILURE_BYTES_MAX, FAILURE_LINE_CHARS_MAX, Failure, line_of

ANY = st.text(max_size=50) | st.text(min_size=1, max_size=9).map(lambda each: each * 3000)


@given(ANY, ANY.filter(bool), ANY, ANY)
def test_what_is_cut_can_be_kept(text: str, kind: str, trace: str, handler: str) -> None:
    found = Failure.cut(text, f"x{kind}", trace, handler)
    assert Failure.of(found.said()) == found
    line = line_of(found.said())
    assert 1 <= len(line) <= FAILURE_LINE_CHARS_MAX
    assert line.isprintable()


def test_a_trace_is_cut_in_the_middle() -> None:
    trace = "".join(f"line {n}\n" for n in range(5000))
    kept = Failure.cut("text", "Type", trace, "handler").trace
    assert kept.startswith("line 0\n")
    assert kept.endswith("line 4999\n")
    assert "[...]" in kept


@pytest.mark.parametrize(
    ("said", "line"),
    [
        ({"type": "E", "text": "a\n b\r\tc"}, "E: a b c"),
        ({"text": "\x00\x1b[2J"}, "[2J"),
        ({"trace": "x"}, "a failure"),
        ({"type": 5, "text": None}, "a failure"),
    ],
)
def test_a_line_is_printable(said: dict[str, object], line: str) -> None:
    assert line_of(said) == line


@pytest.mark.parametrize(
    "said", ["", None, 5, [], {}, {"text": 1}, {"x": "y"}, "\ud800", "x" * (FAILURE_BYTES_MAX + 1)]
)
def test_what_says_nothing_or_too_much_is_none(said: object) -> None:
    with pytest.raises(ValueError, match=r"failure|surrogates"):
        Failure.of(said)
