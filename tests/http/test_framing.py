"""Where requests end does not depend on the pieces in which they come."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.http.framing import BodyBroken, FramesRefused, Framing, HeadTooLong, Malformed

REFUSALS = (BodyBroken, FramesRefused, HeadTooLong, Malformed)


def _chunked(chunks: list[bytes], trailer: bytes) -> bytes:
    sizes = b"".join(b"%x;a=b\r\n%b\r\n" % (len(each), each) for each in chunks)
    return b"POST /q HTTP/1.1\r\nTransfer-Encoding: CHUNKED\r\n\r\n" + sizes + b"0\r\n" + trailer


BODIES = st.binary(max_size=30)
REQUESTS = st.one_of(
    st.just(b"GET / HTTP/1.0\r\n\r\n"),
    BODIES.map(lambda body: b"PUT /q HTTP/1.1\r\ncontent-length:%d\r\n\r\n" % len(body) + body),
    st.builds(
        _chunked,
        st.lists(st.binary(min_size=1, max_size=30), max_size=4),
        st.sampled_from((b"\r\n", b"X: y\r\n\r\n")),
    ),
)


def pieces_of(stream: bytes, cuts: list[int]) -> list[bytes]:
    ends = sorted({min(each, len(stream)) for each in cuts} | {len(stream)})
    return [stream[a:b] for a, b in zip([0, *ends], ends, strict=False)]


def taken(pieces: list[bytes]) -> list[bytes]:
    """What is handed on, request by request."""
    framing, found = Framing(lambda: 0.0), []
    for piece in pieces:
        framing.add(piece)
        begins = framing.is_at_head
        while part := framing.take():
            if begins:
                found.append(b"")
            found[-1] += part
            begins = framing.is_at_head
    return found


@given(st.lists(REQUESTS, max_size=4), st.lists(st.integers(0, 400), max_size=8))
def test_each_request_is_handed_on_as_it_is(requests: list[bytes], cuts: list[int]) -> None:
    stream = b"\r\n".join(requests)
    assert taken(pieces_of(stream, cuts)) == requests


@given(REQUESTS, st.binary(max_size=80), st.lists(st.integers(0, 400), max_size=8))
def test_whatever_comes_is_handed_on_once_or_refused(
    request: bytes, more: bytes, cuts: list[int]
) -> None:
    stream = request + more
    try:
        whole = b"".join(taken(pieces_of(stream, cuts)))
    except REFUSALS:
        return
    assert stream.replace(b"\r\n", b"").startswith(whole.replace(b"\r\n", b""))


@pytest.mark.parametrize("cut", [*range(1, 20)])
def test_a_chunk_that_is_none_is_refused_wherever_it_is_cut(cut: int) -> None:
    good = b"POST /q HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"
    for bad in (b"3\r\nabcd\r\n0\r\n\r\n", b"x\r\n", b"3\nabc", b"0\r\nno trailer\r\n\r\n"):
        stream = good + bad
        with pytest.raises(BodyBroken):
            taken([stream[:-cut], stream[-cut:]])
        assert taken([good]) == [good]
