"""Selections: what is printed is parsed, what is none is told, and what each matches, beside a
model that reads the terms one by one.
"""

import re

import pytest
from harness.selections import UUID, Message, Term, Wanted, messages, said, terms, trees
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import BadParameter
from mq.model.limits import KEY_WRITTEN_BYTES_MAX, SELECT_CHARS_MAX
from mq.model.names import EXTENSIONS
from mq.model.selection import SELECT_TERMS_MAX, Selection


@given(terms, messages)
def test_a_message_is_of_a_selection_when_all_its_terms_hold(
    wanted: tuple[Wanted, ...], message: Message
) -> None:
    selection = Selection.parse(said(wanted))
    expected = all(each.holds(message) for each in wanted)
    message_id, headers = message.stored()
    assert selection.matches(message_id, headers) is expected
    by_name = selection.matches_name(message_id.text)
    assert by_name in (expected, None)
    # What has no block is wholly told by its name.
    assert by_name is not None or message_id.header_bytes


@given(terms, st.lists(trees, min_size=1, max_size=2), messages)
def test_groups_and_ranges_hold_as_a_plain_model_says(
    wanted: tuple[Wanted, ...], groups: list[Term], message: Message
) -> None:
    texts = (said(wanted), *map(str, groups))
    # A term begins with its kind; a range of a header has a second colon.
    if sum(len(re.findall(r"(?:^|[(,])[a-z-]+:", text)) for text in texts) > SELECT_TERMS_MAX:
        with pytest.raises(BadParameter, match="terms"):
            Selection.parse(*texts)
        return
    selection = Selection.parse(*texts)
    expected = all(each.holds(message) for each in (*wanted, *groups))
    message_id, headers = message.stored()
    assert selection.matches(message_id, headers) is expected
    by_name = selection.matches_name(message_id.text)
    assert by_name in (expected, None)
    assert by_name is not None or message_id.header_bytes
    lowest, highest = selection.priorities
    assert not expected or lowest <= message.priority <= highest
    again = Selection.parse(selection.text)
    assert (again, again.text) == (selection, selection.text)
    assert again.matches(message_id, headers) is expected


@given(terms)
def test_a_selection_printed_is_the_same(wanted: tuple[Wanted, ...]) -> None:
    selection = Selection.parse(said(wanted))
    again = Selection.parse(str(selection))
    assert (again, str(again)) == (selection, str(selection))
    assert Selection.parse(*map(str, reversed(wanted))) == selection
    assert hash(again) == hash(selection)


@given(st.lists(terms, min_size=2, max_size=2), messages)
def test_selections_of_one_text_take_the_same(
    two: list[tuple[Wanted, ...]], message: Message
) -> None:
    first, second = (Selection.parse(*map(str, each)) for each in two)
    if first == second:
        message_id, headers = message.stored()
        assert first.matches(message_id, headers) is second.matches(message_id, headers)


WORDS = (
    "priority:", "key:", "content-type:", "header:ce-a", "any(", "all(", "not(", ")", ",", "..",
    "9", "<", ">=", "=", ":", "*", "\\", "a/b", "é", "\ud800", "\x7f", " ",
)  # fmt: skip


@given(st.lists(st.sampled_from(WORDS), max_size=20).map("".join))
def test_what_is_no_selection_is_told_as_a_bad_parameter(text: str) -> None:
    try:
        selection = Selection.parse(text)
    except BadParameter as error:
        told = error
    else:
        assert Selection.parse(selection.text) == selection
        return
    assert told.parameter == "select"
    assert told.expected.isascii()


BAD = [
    "", ",", "priority:9,", ",priority:9", "priority", "Priority:9", "colour:red", " priority:9",
    "priority:", "priority:..", "priority:10", "priority:7..3", "priority:3-7", "priority:35",
    "priority:1,priority:1", "key:", "key:a*b", "key:**", "key:a\\", "key:a\\b", "key:a,b",
    "key:" + "x" * (KEY_WRITTEN_BYTES_MAX + 1), "key:" + " " * 30 + "*", "key:a,key:b",
    "content-type:", "content-type:*", "content-type:text", "content-type:text*",
    "content-type:text/plain; charset=utf-8", "content-type:/plain", "content-type:text/",
    "content-type:text/plain,content-type:text/*", "header:", "header:*", "header:ce-a*",
    "header:x-other", "header:content-type=text/plain", "header:ce-a b=1", "header:=a",
    "header:ce-a=\x00", "header:ce-a=\ud800", "header:ce-a=b*c", "key:\ud800",
    "any()", "any(key:a", "any(key:a))", "any(key:a)key:b", "any(key:a,)", "not(key:a,key:b)",
    "or(key:a)", "ANY(key:a)", "all(key:a,key:b)", "any(key:a(b)", "any(key:a(b))", "(key:a)",
    "not(not(not(not(not(key:a)))))", "header:ce-a<", "header:ce-a>*", "header:ce-a:",
    "header:ce-a:5", "header:ce-a:..", "header:ce-a<a*", "header:<5", "header:ce-a<\x00",
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_a_bad_term_is_told(text: str) -> None:
    with pytest.raises(BadParameter) as told:
        Selection.parse(text)
    assert told.value.parameter == "select"


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("priority:3..7", "priority:3..7"),
        ("priority:9..9", "priority:9"),
        ("priority:5..", "priority:5..9"),
        ("priority:..3", "priority:0..3"),
        ("key:é", "key:é"),
        ("key:*", "key:*"),
        ("key:a\\,b\\*\\\\*", "key:a\\,b\\*\\\\*"),
        ("content-type:Image/SVG XML", "content-type:image/svg+xml"),
        ("content-type:text/*", "content-type:text/*"),
        ("header:CE-Type=A", "header:ce-type=A"),
        ("header:ce-type=*", "header:ce-type"),
        ("header:ce-type=", "header:ce-type="),
        ("header:ce-b,header:ce-a,header:ce-b", "header:ce-a,header:ce-b"),
        ("header:ce-a=x=y", "header:ce-a=x=y"),
        ("key:k,priority:0", "priority:0,key:k"),
        ("key:a(b)|c", "key:a\\(b\\)|c"),
        ("any(key:b,key:a,key:b),priority:1", "priority:1,any(key:a,key:b)"),
        ("not(all(key:b,priority:1))", "not(all(priority:1,key:b))"),
        ("header:ce-a:5..", "header:ce-a>=5"),
        ("header:ce-a:..5", "header:ce-a<=5"),
        ("header:CE-A:2026-01..2026-02", "header:ce-a:2026-01..2026-02"),
    ],
)
def test_how_a_selection_is_written(text: str, canonical: str) -> None:
    assert Selection.parse(text).text == canonical


def test_a_selection_is_bounded() -> None:
    with pytest.raises(BadParameter):
        Selection.parse("header:ce-a=" + "x" * SELECT_CHARS_MAX)
    names = [f"header:ce-{number}" for number in range(SELECT_TERMS_MAX + 1)]
    Selection.parse(*names[1:])
    with pytest.raises(BadParameter):
        Selection.parse(*names)
    with pytest.raises(BadParameter):
        Selection.parse(f"any({','.join(names)})")


@pytest.mark.parametrize(
    ("texts", "character"),
    [
        (("key:a,colour:red",), 7),
        (("key:a", "priority:1,key:b"), 18),
        (("any(key:a,not(priority:x))",), 15),
        (("any(key:a",), 10),
        (("key:a,nor(key:b)",), 7),
    ],
)
def test_an_error_says_where(texts: tuple[str, ...], character: int) -> None:
    with pytest.raises(BadParameter) as told:
        Selection.parse(*texts)
    assert told.value.expected.endswith(f"from character {character} on")


def test_a_group_narrows_the_priorities_that_are_looked_through() -> None:
    wanted = "priority:2..8,any(priority:9,priority:7,all(priority:1..3,not(key:a)))"
    assert Selection.parse(wanted).priorities == (2, 8)
    assert Selection.parse("any(priority:9,priority:7)").priorities == (7, 9)
    nothing = Selection.parse("any(priority:9),priority:1")
    assert nothing.matches_name(f"{UUID},p=9") is False
    assert nothing.matches_name(UUID) is False


@pytest.mark.parametrize("name", [f"{UUID}x", f"{UUID},p=0", f"{UUID}.exe", f"{UUID},h=a"])
def test_what_is_no_id_is_of_no_selection(name: str) -> None:
    assert not Selection.parse("priority:0..9").matches_name(name)


def test_an_extension_tells_the_type_whatever_the_block_says() -> None:
    name = f"{UUID},h=9.json"
    assert Selection.parse("content-type:application/json").matches_name(name)
    assert Selection.parse("content-type:text/*").matches_name(name) is False
    assert Selection.parse("content-type:text/*").matches_name(f"{UUID},h=9") is None
    assert set(EXTENSIONS.values()) >= {"application/json", "text/plain"}
