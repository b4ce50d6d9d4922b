"""Where requests end does not depend on the pieces in which they come."""

from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.http.request import BodyBroken, Client, Framing, Malformed, parse
from mq.model.errors import HeadersTooLarge

REFUSALS = (BodyBroken, HeadersTooLarge, Malformed)
NO_CLIENT = cast(Client, None)

Sent = tuple[bytes, bytes, bytes]
"""A request's head, its body as it is sent, and what that says."""


def _sized(body: bytes) -> Sent:
    return b"PUT /q HTTP/1.1\r\ncontent-length:%d\r\n\r\n" % len(body), body, body


def _chunked(chunks: list[bytes], trailer: bytes) -> Sent:
    sizes = b"".join(b"%x;a=b\r\n%b\r\n" % (len(each), each) for each in chunks)
    head = b"POST /q HTTP/1.1\r\nTransfer-Encoding: CHUNKED\r\n\r\n"
    return head, sizes + b"0\r\n" + trailer, b"".join(chunks)


REQUESTS = st.one_of(
    st.just((b"GET / HTTP/1.0\r\n\r\n", b"", b"")),
    st.binary(max_size=30).map(_sized),
    st.builds(
        _chunked,
        st.lists(st.binary(min_size=1, max_size=30), max_size=4),
        st.sampled_from((b"\r\n", b"X: y\r\n\r\n")),
    ),
)


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(each, len(stream)) for each in cuts} | {len(stream)})
    return [stream[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def taken(pieces: list[bytes]) -> list[tuple[bytes, bytes, bool]]:
    """What is taken of each request: its head, its body, and whether that is whole."""
    framing = Framing()
    found: list[tuple[bytes, bytes, bool]] = []
    for piece in pieces:
        framing.data += piece
        while True:
            if framing.is_at_head:
                if not (head := framing.head()):
                    break
                framing.begin_body(parse(head, NO_CLIENT).head.length)
                found.append((head, b"", framing.is_at_head))
                continue
            head, body, _ = found[-1]
            body += framing.body()
            found[-1] = head, body, framing.is_at_head
            if not framing.is_at_head and not framing.is_tired:
                break
    return found


@given(st.lists(REQUESTS, max_size=4), st.lists(st.integers(0, 400), max_size=8))
def test_each_request_is_taken_as_it_is(requests: list[Sent], cuts: list[int]) -> None:
    stream = b"\r\n".join(head + body for head, body, _ in requests)
    assert taken(pieces_of(stream, cuts)) == [(head, said, True) for head, _, said in requests]


@given(REQUESTS, st.binary(max_size=80), st.lists(st.integers(0, 400), max_size=8))
def test_what_comes_behind_is_not_taken_for_the_body(
    request: Sent, more: bytes, cuts: list[int]
) -> None:
    head, body, said = request
    try:
        found = taken(pieces_of(head + body + more, cuts))
    except REFUSALS:
        return
    assert found[0] == (head, said, True)


@pytest.mark.parametrize("cut", [*range(1, 20)])
def test_a_chunk_that_is_none_is_refused_wherever_it_is_cut(cut: int) -> None:
    good = b"POST /q HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    for bad in (b"3\r\nabcd\r\n0\r\n\r\n", b"x\r\n", b"3\nabc", b"0\r\nno trailer\r\n\r\n"):
        stream = good + bad
        with pytest.raises(BodyBroken):
            taken([stream[:-cut], stream[-cut:]])
        assert [body for _, body, _ in taken([good])] == [b"abc"]
