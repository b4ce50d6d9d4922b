"""The lines of a history, and its events: FORMAT.md says the same."""

import json
import re
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import mq.store
from mq.model.clock import rfc3339
from mq.model.history import Event, Line, dropped, mentions, parse_line
from mq.model.lifecycle import TRANSITIONS
from mq.model.names import MessageId

FORMAT = Path(mq.store.__file__).with_name("FORMAT.md").read_text(encoding="utf-8")
ID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"
KEYED = f"{ID},p=3,k=caf=C3=A9.json"
LINES = st.builds(
    Line,
    st.integers(0, 253_402_300_799_999),
    st.sampled_from(Event),
    st.sampled_from([ID, KEYED]),
    st.none() | st.integers(0, 999),
    st.none() | st.integers(0, 253_402_300_799_999),
    st.sampled_from(["", "c_-1.12"]),
)


def events() -> dict[str, list[str]]:
    """Each transition's events, as the page has them."""
    section = FORMAT.split("## The lifecycle")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([a-z ]+) \|(?: [^|]+ \|){3} ([^|]*)\|$", section, re.MULTILINE)
    found: dict[str, list[str]] = {}
    last: list[str] = []
    for name, cell in rows:
        if name != "transition":
            last = last if cell.strip() == "the same" else re.findall(r"`(\w+)`", cell)
            found[name] = last
    return found


def test_the_documented_events_are_the_code_s() -> None:
    assert {event for each in events().values() for event in each} == {
        event.value for event in Event if event is not Event.DROPPED
    }


def test_each_transition_has_its_event() -> None:
    assert set(events()) == {each.name for each in TRANSITIONS}
    without = {name for name, each in events().items() if not each}
    assert without == {"stage", "discard", "forget", "retire", "reap"}
    # A lease lapsed and was returned, or its consumer returned it.
    assert events()["return"] == ["redelivered", "released"]


@given(LINES)
def test_a_line_is_read_as_it_was_written(line: Line) -> None:
    written = line.written("mq-0123456789abcdef")
    assert written.endswith(b"}\n")
    assert written.count(b"\n") == 1
    assert mentions(line.id) in written
    found = parse_line(written, line.id)
    assert found is not None
    expected = {
        "time": rfc3339(line.time_ms),
        "event": line.event.value,
        "receives": line.receives,
        "due": None if line.due_ms is None else rfc3339(line.due_ms),
        "lease": line.lease or None,
        "process": "mq-0123456789abcdef",
    }
    assert found == {name: value for name, value in expected.items() if value is not None}
    other = KEYED if line.id == ID else ID
    assert mentions(other) not in written
    assert parse_line(written, other) is None


@given(LINES, st.data())
def test_a_torn_line_is_none(line: Line, data: st.DataObject) -> None:
    written = line.written("mq-0123456789abcdef").strip()
    torn = written[: data.draw(st.integers(1, len(written) - 1))]
    assert parse_line(torn, line.id) is None
    assert parse_line(torn + written, line.id) is None


@given(st.binary())
def test_any_bytes_are_read_or_passed_over(line: bytes) -> None:
    assert parse_line(line, ID) is None


def test_dropped_lines_are_counted() -> None:
    found = json.loads(dropped(0, 7, "mq-0123456789abcdef"))
    assert found == {
        "time": "1970-01-01T00:00:00.000Z",
        "event": "dropped",
        "count": 7,
        "process": "mq-0123456789abcdef",
    }


def test_an_id_needs_no_escape() -> None:
    message_id = MessageId.parse(KEYED)
    assert json.loads(json.dumps(message_id.text)) == message_id.text
    assert json.dumps(message_id.text) == f'"{message_id.text}"'
