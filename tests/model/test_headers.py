"""The header block: what is kept comes back, and what a block says is what a request could."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import BadParameter, HeadersTooLarge
from mq.model.headers import Headers, kept, parse_block, print_block
from mq.model.limits import HEADER_BLOCK_BYTES_MAX, HEADERS_MAX
from mq.model.names import CONTENT_TYPES

TOKEN = "!#$%&'*+-.^_`|~0123456789abcXYZ"
names = st.one_of(
    st.sampled_from(["traceparent", "TraceState", "Content-Encoding", "ce-id", "CE-Source"]),
    st.text(TOKEN, max_size=12).map("x-attribute-".__add__),
    st.text(TOKEN, max_size=12).map("ce-".__add__),
)
values = st.text(
    st.one_of(
        st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), st.sampled_from("\t\x85 ")
    ),
    max_size=30,
).map(lambda text: text.strip(" \t"))
headers = st.lists(st.tuples(names, values), max_size=20).map(tuple)


@given(headers)
def test_what_is_kept_comes_back_as_it_came(given_headers: Headers) -> None:
    assert kept(given_headers) == given_headers
    assert parse_block(print_block(given_headers)) == given_headers


@given(headers, st.lists(st.tuples(st.text(max_size=9), st.text(max_size=9))).map(tuple))
def test_whatever_else_a_request_has_is_left_out(mine: Headers, others: Headers) -> None:
    others = tuple((f"y-{name}", value) for name, value in others)
    assert kept(others + mine) == mine


@given(st.one_of(st.binary(max_size=200), headers.map(print_block)), st.binary(max_size=60))
def test_no_foreign_block_gets_anything_into_an_answer(begin: bytes, end: bytes) -> None:
    """What comes of any bytes is what some request's headers would have been kept as."""
    for block in (begin + end, end + begin, begin + b"\n" + end, begin + end + b"\n"):
        found = parse_block(block)
        for name, value in found:
            assert re.fullmatch(
                r"(?i)(traceparent|tracestate|content-(type|encoding)|(ce|x-attribute)-[^\s:]*)",
                name,
            )
            assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f]", value)
        assert parse_block(print_block(found)) == found
        if len(found) <= HEADERS_MAX:
            assert kept(found) == found


@pytest.mark.parametrize(
    "line",
    [
        b"X-Message-Id: a", b"Set-Cookie: a", b"Content-Length: 3", b"ETag: \"9\"",
        b"Transfer-Encoding: chunked", b"Cache-Control: public", b"ce id: a", b"ce-id : a",
        b" ce-id: a", b"ce-id:a", b"ce-id:  a", b"ce-id: a ", b"ce-id", b"", b": a",
        b"ce-id: a\rX-Evil: b", b"ce-id: a\0", b"ce-id: \xff", b"ce-\xc3\xa4: a", b"ce-id: a\x7f",
        b"Content-Type: application/json", b"Content-Type: application/octet-stream",
    ],
)  # fmt: skip
def test_a_line_that_mq_would_not_have_written_is_passed_over(line: bytes) -> None:
    well = b"ce-a: b\n"
    assert parse_block(well + line + b"\n" + well) == (("ce-a", "b"), ("ce-a", "b"))


def test_a_line_without_its_end_is_passed_over() -> None:
    assert parse_block(b"ce-a: b\nce-id: half") == (("ce-a", "b"),)


@pytest.mark.parametrize(
    ("content_type", "is_kept"),
    [
        *((content_type, False) for content_type in CONTENT_TYPES),
        ("APPLICATION/JSON", False),
        ("application/octet-stream", False),
        ("application/x-www-form-urlencoded", False),
        ("", False),
        ("text/plain; charset=utf-8", True),
        ("application/json;charset=UTF-8", True),
        ("application/vnd.acme+json", True),
        ("no type at all", True),
    ],
)
def test_a_content_type_is_kept_where_no_extension_says_it(
    content_type: str, is_kept: bool
) -> None:
    found = kept([("Content-Type", content_type)])
    assert found == ((("Content-Type", content_type),) if is_kept else ())


def test_as_many_and_as_long_as_there_is_room_for() -> None:
    as_many = tuple((f"ce-{number}", "") for number in range(HEADERS_MAX))
    assert kept(as_many) == as_many
    with pytest.raises(HeadersTooLarge):
        kept((*as_many, ("ce-more", "")))
    room = HEADER_BLOCK_BYTES_MAX - len(b"ce-a: \n")
    assert len(print_block(kept([("ce-a", "x" * room)]))) == HEADER_BLOCK_BYTES_MAX
    with pytest.raises(HeadersTooLarge):
        kept([("ce-a", "x" * room + "x")])
    # Bytes are counted, not characters.
    with pytest.raises(HeadersTooLarge):
        kept([("ce-a", "ä" * (room // 2 + 1))])
    assert kept([("other", "x" * HEADER_BLOCK_BYTES_MAX)]) == ()


@pytest.mark.parametrize("value", ["\udcff", "a\nce-b: c", "a\x00", "a\x7f", " a", "a\t", "\r"])
def test_what_would_not_come_back_is_refused(value: str) -> None:
    with pytest.raises(BadParameter) as raised:
        kept([("ce-a", value)])
    assert raised.value.parameter == "headers"
