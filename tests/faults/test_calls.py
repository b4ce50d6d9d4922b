"""Each operation's calls that change the disk or flush it, held against a table (`calls.txt`)."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.playing import At, Play, all_plays, difference, read_table, sections
from harness.server import Serve

import mq.store

ROWS = read_table()
PLAYS = all_plays()
PROTOCOL = Path(mq.store.__file__).with_name("PROTOCOL.md")


@pytest.fixture
def at(root: Path, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> Iterator[At]:
    made = At(root, serve)
    made.place(monkeypatch)
    yield made
    made.close()


@pytest.mark.parametrize("play", PLAYS)
async def test_an_operation_s_calls_are_those_of_the_table(play: Play, at: At) -> None:
    await play.act(at)
    if found := difference(at.calls(), ROWS[play.row]):
        pytest.fail(found, pytrace=False)


def test_each_row_of_the_table_is_played() -> None:
    assert {play.row for (play,) in (each.values for each in PLAYS)} == set(ROWS)


def test_each_section_of_the_table_is_one_of_the_page() -> None:
    headings = re.findall(r"^##+ (.*)$", PROTOCOL.read_text(), re.MULTILINE)
    assert set(sections()) <= set(headings)
