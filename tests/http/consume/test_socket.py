"""A server's frames, read by another's reader."""

import pytest
from websockets.frames import CloseCode as Known
from websockets.frames import Frame
from websockets.frames import Opcode as Theirs
from websockets.streams import StreamReader

from mq.http.consume.socket import CloseCode, Opcode, frame, head


def read(data: bytes) -> Frame:
    """What another implementation makes of the bytes, all of which are the frame's."""
    reader = StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    parsing = Frame.parse(reader.read_exact, mask=False)
    try:
        while True:
            next(parsing)
    except StopIteration as done:
        assert not reader.buffer
        found: Frame = done.value
        return found


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 1 << 20])
@pytest.mark.parametrize("is_last", [True, False])
def test_a_frame_of_any_size(size: int, is_last: bool) -> None:
    payload = bytes(size)
    found = read(frame(Opcode.BINARY, payload, is_last))
    assert (found.opcode, found.data, found.fin) == (Theirs.BINARY, payload, is_last)
    assert (found.rsv1, found.rsv2, found.rsv3) == (False, False, False)
    assert frame(Opcode.BINARY, payload, is_last) == head(Opcode.BINARY, size, is_last) + payload


def test_every_opcode_is_theirs() -> None:
    for opcode in Opcode:
        payload = CloseCode.NORMAL.to_bytes(2, "big") if opcode is Opcode.CLOSE else b""
        assert (
            read(frame(opcode, payload)).opcode
            == Theirs[{"CONTINUATION": "CONT"}.get(opcode.name, opcode.name)]
        )


def test_every_code_is_theirs() -> None:
    assert set(CloseCode) <= set(Known)
