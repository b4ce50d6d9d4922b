"""Selections: what is printed is parsed, what is none is told, and what each matches, beside a
model that reads the terms one by one.
"""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.errors import BadParameter
from mq.headers import Headers, kept, print_block
from mq.limits import KEY_WRITTEN_BYTES_MAX, SELECT_CHARS_MAX, SELECT_TERMS_MAX
from mq.names import CONTENT_TYPE_DEFAULT, EXTENSIONS, Key, MessageId, extension_for
from mq.selection import Selection

UUID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"

# Few of each, so that they meet.
KEYS = ("a", "ab", "abc", "a,b", "a*", "a\\", "é", "éa", "=41", "x" * KEY_WRITTEN_BYTES_MAX)
TYPES = (
    "", "text/plain", "text/plain; charset=utf-8", "Text/HTML", "application/json", "text/x-odd",
    "application/vnd.acme+json", "image/svg+xml", "application/json;v=1", "odd",
)  # fmt: skip
NAMES = ("ce-type", "CE-Type", "x-attribute-a", "traceparent", "Content-Encoding")
VALUES = ("", "order.created", "order.paid", "order", "a,b", "a*", "a=b", "\\", "é")


@dataclass(frozen=True)
class Message:
    """What its publisher says of a message; `content_type` "" is none."""

    priority: int
    key: str | None
    content_type: str
    headers: Headers

    def stored(self) -> tuple[MessageId, Headers]:
        """How it is stored."""
        said = (("Content-Type", self.content_type),) if self.content_type else ()
        block = kept((*said, *self.headers))
        made = MessageId(
            UUID,
            self.priority,
            None if self.key is None else Key.parse(self.key),
            header_bytes=len(print_block(block)),
            extension=extension_for(self.content_type),
        )
        return made, block


messages = st.builds(
    Message,
    st.integers(0, 9),
    st.none() | st.sampled_from(KEYS),
    st.sampled_from(TYPES),
    st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=3).map(tuple),
)


def escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in ",*\\" else char for char in text)


@dataclass(frozen=True)
class Wanted:
    """A term, as its parts; `priorities` are for that kind alone."""

    kind: str
    text: str = ""
    is_beginning: bool = False
    name: str = ""
    priorities: tuple[int, int] = (0, 9)

    def __str__(self) -> str:
        lowest, highest = self.priorities
        text = escaped(self.text) + "*" * self.is_beginning
        if self.kind == "priority":
            text = str(lowest) if lowest == highest else f"{lowest}..{highest}"
        return f"{self.kind}:{self.name}{'=' if self.name else ''}{text}"

    def holds(self, message: Message) -> bool:
        """The same said plainly."""

        def fits(found: str) -> bool:
            return found[: len(self.text)] == self.text if self.is_beginning else found == self.text

        if self.kind == "priority":
            return self.priorities[0] <= message.priority <= self.priorities[1]
        if self.kind == "key":
            return message.key is not None and fits(message.key)
        if self.kind == "content-type":
            return fits((message.content_type or CONTENT_TYPE_DEFAULT).split(";")[0].lower())
        return any(
            fits(value) for name, value in message.headers if name.lower() == self.name.lower()
        )


def beginnings(texts: tuple[str, ...], least: int = 0) -> st.SearchStrategy[tuple[str, bool]]:
    """A text, or how one begins."""
    exact = st.sampled_from(texts).filter(lambda text: len(text) >= least)
    return st.one_of(
        exact.map(lambda text: (text, False)),
        st.tuples(exact, st.integers(least, 12)).map(lambda each: (each[0][: each[1]], True)),
    )


media_types = tuple(
    each.split(";")[0].lower() for each in (*TYPES, CONTENT_TYPE_DEFAULT) if "/" in each
)
term_kinds = (
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(
        lambda each: Wanted("priority", priorities=(min(each), max(each)))
    ),
    beginnings(KEYS).map(lambda each: Wanted("key", *each)),
    beginnings(media_types)
    .filter(lambda each: "/" in each[0])
    .map(lambda each: Wanted("content-type", *each)),
    st.tuples(beginnings(VALUES), st.sampled_from(NAMES)).map(
        lambda each: Wanted("header", *each[0], name=each[1])
    ),
)
# Each kind at most once, but for headers.
terms = st.permutations([*term_kinds, term_kinds[-1]]).flatmap(
    lambda kinds: st.integers(1, 3).flatmap(lambda count: st.tuples(*kinds[:count]))
)


@given(terms, messages)
def test_a_message_is_of_a_selection_when_all_its_terms_hold(
    wanted: tuple[Wanted, ...], message: Message
) -> None:
    selection = Selection.parse(",".join(map(str, wanted)))
    expected = all(each.holds(message) for each in wanted)
    message_id, headers = message.stored()
    assert selection.matches(message_id, headers) is expected
    by_name = selection.matches_name(message_id.text)
    assert by_name in (expected, None)
    # What has no block is wholly told by its name.
    assert by_name is not None or message_id.header_bytes


@given(terms)
def test_a_selection_printed_is_the_same(wanted: tuple[Wanted, ...]) -> None:
    selection = Selection.parse(",".join(map(str, wanted)))
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


@given(st.text("priortykeyhdcn:-.*\\,=9/ \n\x7fé\ud800", max_size=30))
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


@pytest.mark.parametrize("name", [f"{UUID}x", f"{UUID},p=0", f"{UUID}.exe", f"{UUID},h=a"])
def test_what_is_no_id_is_of_no_selection(name: str) -> None:
    assert not Selection.parse("priority:0..9").matches_name(name)


def test_an_extension_tells_the_type_whatever_the_block_says() -> None:
    name = f"{UUID},h=9.json"
    assert Selection.parse("content-type:application/json").matches_name(name)
    assert Selection.parse("content-type:text/*").matches_name(name) is False
    assert Selection.parse("content-type:text/*").matches_name(f"{UUID},h=9") is None
    assert set(EXTENSIONS.values()) >= {"application/json", "text/plain"}
