"""What decides and acts on nothing: lines, near names, how a value is written."""

import re
from datetime import UTC, datetime, timedelta
from io import BytesIO, StringIO, TextIOWrapper

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.errors import QueueNotFound, problem_of
from mq.tools.mqctl.complaints import failed
from mq.tools.mqctl.options import Options
from mq.tools.mqctl.printing import Printer, plain, relative, shown
from mq.tools.mqctl.reading import Lines


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=6))
def test_lines_are_the_same_however_they_are_cut(text: bytes, cuts: list[int]) -> None:
    lines, found = Lines(1000), []
    places = sorted(min(cut, len(text)) for cut in cuts)
    for start, end in zip([0, *places], [*places, len(text)], strict=True):
        taken, error = lines.take(text[start:end])
        assert error is None
        found += taken
    found += lines.end()
    whole = text.split(b"\n")
    wanted = [(at, line.removesuffix(b"\r")) for at, line in enumerate(whole, 1)]
    assert found == [(at, line) for at, line in wanted if line]
    assert lines.held_bytes == 0


@given(st.lists(st.binary(max_size=9).map(lambda line: line.replace(b"\n", b""))), st.data())
def test_a_line_that_is_too_long_ends_it_behind_those_before(
    before: list[bytes], data: st.DataObject
) -> None:
    lines = Lines(10)
    text = b"".join(line + b"\n" for line in before) + b"x" * data.draw(st.integers(11, 40))
    found, error = lines.take(text)
    assert [line for _, line in found] == [
        stripped for line in before if (stripped := line.removesuffix(b"\r"))
    ]
    assert error is not None
    assert str(error).startswith(f"line {len(before) + 1} ")
    assert lines.held_bytes <= 10


@given(st.text())
def test_what_is_shown_is_one_line_without_commands(text: str) -> None:
    written = shown(text)
    assert not any(ord(each) < 32 or 0x7F <= ord(each) < 0xA0 for each in written)
    assert "\u202e" not in written


def test_values_are_shown_as_people_read_them() -> None:
    assert [shown(value) for value in (None, True, False, 1.5, 30.0, 0.0, {"a": 1})] == [
        *("-", "yes", "no", "1.5", "30", "0", '{"a": 1}')
    ]
    noon = datetime(2030, 1, 31, 12, tzinfo=UTC)
    assert shown(noon) == plain(noon) == "2030-01-31T12:00:00.000Z"


def test_a_time_is_told_by_its_distance_in_one_unit() -> None:
    noon = datetime(2030, 1, 31, 12, tzinfo=UTC)
    away = (0, 0.9, 59, 61, 3599, 7300, 200_000, -1, -90, -86_400)
    assert [relative(noon - timedelta(seconds=each), noon) for each in away] == [
        *("now", "now", "59s ago", "1m ago", "59m ago", "2h ago", "2d ago"),
        *("in 1s", "in 1m", "in 1d"),
    ]


class Narrow(StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("columns", "wanted"),
    [
        (40, ["id      n  body", "abcdef  1  a body", "g       2  another, long"]),
        (23, ["id      n  body", "abcdef  1  a body", "g       2  another, lo…"]),
        (22, ["id      body", "abcdef  a body", "g       another, long"]),
        (19, ["id    abcdef", "n     1", "body  a body", "", "id    g", "n     2"]),
    ],
)
def test_a_narrow_terminal_loses_columns_and_no_id(
    columns: int, wanted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = Narrow()
    rows = [("abcdef", 1, "a body"), ("g", 2, "another, long")]
    Printer(as_json=False, out=out).fitted(("id", "n", "body"), rows, ("n",))
    shown_lines = re.sub(r"\x1b\[\d*m", "", out.getvalue()).splitlines()
    assert shown_lines[: len(wanted)] == wanted


def test_bytes_that_are_no_text_are_base64_in_json() -> None:
    assert plain({"body": b"\xff"}) == {"body_base64": "/w=="}
    assert plain({"body": b"a"}) == {"body": "a"}


def test_a_problem_is_told_with_its_type_and_facts() -> None:
    problem = problem_of(
        {"type": "urn:mq:problem:no-space", "status": 503, "detail": "Full.", "retryable": True}
    )
    told = failed(problem, Options())
    assert told.exit_code == 1
    assert told.message == "Full. (no-space) Try again later."
    missing = QueueNotFound({"type": "urn:mq:problem:queue-not-found", "queue": "ordres"})
    assert failed(missing, Options(), ["orders"]).message == (
        "There is no queue ordres. Did you mean orders?"
    )


def test_options_never_say_their_token() -> None:
    assert "secret" not in repr(Options(token="secret"))


def test_what_the_terminal_s_encoding_lacks_is_escaped() -> None:
    written = BytesIO()
    out = TextIOWrapper(written, encoding="ascii")
    printer = Printer(as_json=False, out=out)
    printer.document({"name": "caf\u00e9"})
    printer.flush()
    assert written.getvalue() == b'{"name": "caf\\u00e9"}\n'
