"""Whatever frames come over a WebSocket: it ends, nothing fails, and what it held comes back."""

import asyncio
import json
import struct
from collections.abc import Callable
from typing import Any

from harness.api import fetch, publish
from harness.raw import HANDSHAKE, raw_frame
from harness.waiting import comes_true
from hypothesis import strategies as st

from fuzz.fuzzed import Fuzzed, fuzz
from fuzz.requests import ID

_MESSAGES = 3
_VERBS = (
    *("subscribe", "unsubscribe", "follow", "unfollow", "ack", "release", "sideline", "credit"),
    *("ref", "x", ""),
)
_TEXT, _CONTINUATION, _CLOSE = 1, 0, 8

_SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.sampled_from(("q", "other", "..", "q_SIDELINE", ID, "header:x=y", "\ud800", "\0")),
)
_VALUES = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(
            st.one_of(
                st.sampled_from(("queue", "credit", "priority", "visibility_s", "select", "q")),
                st.text(max_size=3),
            ),
            inner,
            max_size=3,
        ),
    ),
    max_leaves=8,
)


@st.composite
def _commands(draw: Callable[..., Any]) -> bytes:
    """What a client may say, or nearly so."""
    said = draw(st.dictionaries(st.sampled_from(_VERBS), _VALUES, max_size=3))
    if draw(st.booleans()):
        wanted = {"queue": "q", "credit": draw(st.integers(-1, 5))}
        wanted |= draw(st.dictionaries(st.sampled_from(("priority", "select", "x")), _SCALARS))
        said = {"subscribe": [wanted]}
        if draw(st.booleans()):
            said = {"follow": [{"queue": "q", "last": draw(st.integers(-1, 3))}]}
    return json.dumps(said).encode()


_ODD = st.sampled_from(
    (b"", b"\xff\xfe", b'"\xc3', b"[" * 100_000, b'{"ref": ' + b"9" * 5000 + b"}", b"null", b"{}{}")
)


@st.composite
def _frames(draw: Callable[..., Any]) -> bytes:
    """A frame, sound more often than not."""
    payload = draw(st.one_of(_commands(), _commands(), _ODD, st.binary(max_size=130)))
    opcode = draw(st.one_of(st.just(_TEXT), st.just(_TEXT), st.integers(0, 15)))
    is_last = draw(st.integers(0, 4)) > 0
    reserved = draw(st.sampled_from((0, 0, 0, 0, 0x40, 0x20, 0x10)))
    said_bytes = draw(st.sampled_from((None, None, None, None, 0, 126, 1 << 31, 1 << 63)))
    is_masked = draw(st.integers(0, 6)) > 0
    frame = raw_frame(payload, opcode, is_last, is_masked, said_bytes)
    return bytes((frame[0] | reserved,)) + frame[1:]


@st.composite
def _pieces(draw: Callable[..., Any]) -> bytes:
    """A command in fragments, perhaps with something between them."""
    command = draw(_commands())
    at = draw(st.integers(0, len(command)))
    between = draw(
        st.sampled_from((b"", raw_frame(b"ping", 9), raw_frame(b"{}"), raw_frame(b"x" * 126, 9)))
    )
    return raw_frame(command[:at], is_last=False) + between + raw_frame(command[at:], _CONTINUATION)


async def test_whatever_frames_come_it_ends_and_gives_back(fuzzed: Fuzzed) -> None:
    for number in range(_MESSAGES):
        await publish(fuzzed.server, b"%d" % number)

    def throw(thrown: tuple[list[bytes], bool]) -> None:
        frames, says_goodbye = thrown
        goodbye = raw_frame(struct.pack("!H", 1000), _CLOSE) if says_goodbye else b""
        # With what is no frame at all, so that it ends whatever came before.
        fuzzed.check(fuzzed.talk(HANDSHAKE, *frames, goodbye, b"\xff" * 300, ends=None))

    frames = st.lists(st.one_of(_frames(), _pieces()), min_size=1, max_size=5)
    await asyncio.to_thread(fuzz(st.tuples(frames, st.booleans()), throw, 200))

    async def is_back() -> bool:
        reply = await fetch(fuzzed.server)
        if reply.status == 200:
            found.add(reply.body)
        return len(found) == _MESSAGES

    found: set[bytes] = set()
    await comes_true(is_back, "the messages that connections held")
    assert found == {b"%d" % number for number in range(_MESSAGES)}
