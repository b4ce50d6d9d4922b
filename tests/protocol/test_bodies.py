"""The lines of a body."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.protocol.bodies import lines_of


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b"", []),
        (b"\n", []),
        (b"\r\n", []),
        (b"a", [b"a"]),
        (b"a\n", [b"a"]),
        (b"a\r\nb\r\n", [b"a", b"b"]),
        (b"a\r", [b"a"]),
        (b"\r\r\n", [b"\r"]),
        (b"a\rb\n\n\nc", [b"a\rb", b"c"]),
        (b" \n\x00\n\xff\n", [b" ", b"\x00", b"\xff"]),
    ],
)
def test_lines(body: bytes, lines: list[bytes]) -> None:
    assert list(lines_of(body)) == lines


@given(st.binary() | st.lists(st.sampled_from([b"\r", b"\n", b"a", b""])).map(b"".join))
def test_any_body_is_split_at_line_feeds_alone(body: bytes) -> None:
    parts = [part.removesuffix(b"\r") for part in body.split(b"\n")]
    assert list(lines_of(bytearray(body))) == [part for part in parts if part]
