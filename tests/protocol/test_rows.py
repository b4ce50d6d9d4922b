"""A message as one line of JSON, at once and bit by bit."""

import base64
import json
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.message import Delivery, Stamp
from mq.model.names import MessageId, QueueName
from mq.protocol.rows import delivered, is_text, row, row_in_parts

MEMBERS = {"id": "x", "headers": {"A": "}"}}
BODIES = st.binary() | st.text().map(str.encode)


async def chunks_of(body: bytes, sizes: list[int]) -> AsyncIterator[bytes]:
    for size in sizes:
        if not body:
            return
        yield body[:size]
        body = body[size:]
    if body:
        yield body


@given(BODIES, st.lists(st.integers(1, 7)))
async def test_a_row_in_parts_says_what_a_row_says(body: bytes, sizes: list[int]) -> None:
    as_text = await is_text(chunks_of(body, sizes))
    parts = [part async for part in row_in_parts(MEMBERS, chunks_of(body, sizes), as_text)]
    line = b"".join(parts)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == json.loads(row(MEMBERS, body))


@given(BODIES)
def test_a_row_has_the_body_as_it_was(body: bytes) -> None:
    said = json.loads(row(MEMBERS, body))
    if "body" in said:
        assert said["body"].encode() == body
    else:
        assert base64.b64decode(said["body_base64"], validate=True) == body
        with pytest.raises(UnicodeDecodeError):
            body.decode()


def test_a_header_that_stands_there_twice_is_one_value() -> None:
    kept = (
        ("Content-Type", "text/plain; charset=ascii"), ("ce-id", "1"), ("CE-ID", "2"),
    )  # fmt: skip
    message_id = MessageId("0192f3a2-7c4e-7d2a-9b1e-0123456789ab")
    delivery = Delivery(
        QueueName.parse("q"), message_id, Stamp(0, 1), 0, 0, b"", None, headers=kept
    )
    said = delivered(delivery)["headers"]
    assert said == {"content-type": "text/plain; charset=ascii", "ce-id": "1, 2"}
