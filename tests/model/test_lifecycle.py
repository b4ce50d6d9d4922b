"""The lifecycle's table: FORMAT.md says the same, and every move is in it."""

import re
from pathlib import Path

import mq.store
from mq.model.lifecycle import TRANSITIONS, State

FORMAT = Path(mq.store.__file__).with_name("FORMAT.md").read_text(encoding="utf-8")


def documented() -> list[tuple[str, str, str, str]]:
    section = FORMAT.split("## The lifecycle")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([^|]+) \| ([^|]+) \| ([^|]+) \| ([^|]+) \|", section, re.MULTILINE)
    cells = [tuple(cell.strip().strip("`") for cell in row) for row in rows]
    return [row for row in cells if row[0] not in ("transition", "---")]  # type: ignore[misc]


def test_the_documented_transitions_are_the_code_s() -> None:
    in_code = [(each.name, each.source.value, each.target.value, each.by) for each in TRANSITIONS]
    assert documented() == in_code


def test_transitions_have_names_of_their_own() -> None:
    assert len({each.name for each in TRANSITIONS}) == len(TRANSITIONS)


def test_every_state_is_reached_and_left() -> None:
    for state in State:
        assert any(each.source is state for each in TRANSITIONS)
        assert any(each.target is state for each in TRANSITIONS)


def test_nothing_comes_back_from_removed() -> None:
    assert {each.target for each in TRANSITIONS if each.source is State.REMOVED} == {State.ABSENT}
