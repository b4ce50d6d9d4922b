"""Names from the network, by the thousand: none becomes a path that its sender chose, and none is
answered with a 500.
"""

import asyncio
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

from harness.folders import tree
from hypothesis import given
from hypothesis import strategies as st

from fuzz.fuzzed import Fuzzed, fuzz
from fuzz.requests import ID, PATTERNS
from mq.model.errors import MqError
from mq.model.names import ConsumerName, Key, MessageId, QueueName, ScheduleName
from mq.protocol.endpoints import TABLE
from mq.store.format.layout import Keys, Layout

_PARSERS: tuple[Callable[[str], Any], ...] = (
    QueueName.parse,
    MessageId.parse,
    Key.parse,
    Key.parse_written,
    ConsumerName.parse,
    ScheduleName.parse,
)
_ONE_NAME = re.compile(r"[A-Za-z0-9_.,=:-]+")
_NASTY = (
    "..", ".", "/", "\\", "\0", "\n", "\r", "%", "%2e", "%2f", "%00", "q", "_SIDELINE", ID, ",p=9",
    ",k=", ",h=", ",v=", ",x=", "=", ":", ".json", ".d", "-", "\u00e9", "\u202e", "\uff41",
    "\u0661", "\ud800", "a" * 64, "a" * 255, "0", " ", "~", "*", "$(id)", "\x7f", "\x1b",
)  # fmt: skip


@st.composite
def _texts(draw: Callable[..., Any]) -> str:
    some = st.one_of(st.sampled_from(_NASTY), st.text(max_size=5))
    return "".join(draw(st.lists(some, max_size=6)))


@st.composite
def _segments(draw: Callable[..., Any]) -> bytes:
    """A name as it stands in a path: percent-encoded all, a little, twice, wrongly, or not."""
    raw = draw(st.one_of(st.binary(max_size=80), _texts().map(_encoded)))
    match draw(st.integers(0, 4)):
        case 0:
            return quote(raw, safe="").encode()
        case 1:
            return quote(raw).encode()
        case 2:
            return "".join(f"%{byte:02x}" for byte in raw).encode()
        case 3:
            return quote(quote(raw, safe=""), safe="").encode()
    # What ends a request's line is not for this test.
    return bytes(byte for byte in raw if byte not in b" \r\n")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@given(_texts())
def test_what_a_parser_lets_through_is_one_name_of_a_folder(text: str) -> None:
    layout = Layout.of("/top")
    for parse in _PARSERS:
        try:
            parsed = parse(text)
        except MqError:
            continue
        written = parsed.written() if isinstance(parsed, Key) else parsed.text
        assert _ONE_NAME.fullmatch(written), (parse, text)
        assert written not in (".", "..")
        assert len(os.fsencode(written)) <= 255
        if isinstance(parsed, Key):
            place = layout.link(Keys.LOOKUP, QueueName.parse("q"), parsed)
            assert os.path.normpath(place.path) == place.path
            assert place.path.startswith("/top/queues/q/.keys/")


@st.composite
def _asked(draw: Callable[..., Any]) -> bytes:
    pattern = draw(st.sampled_from([each for each in PATTERNS if "{" in each]))
    method = draw(st.sampled_from(sorted(TABLE[pattern])))
    names = [each for each in pattern.split("/") if each.startswith("{")]
    thrown = draw(st.sampled_from(names))
    path = b"/".join(
        draw(_segments()) if each == thrown else b"q" if each.startswith("{") else each.encode()
        for each in pattern.split("/")
    )
    if draw(st.booleans()):
        path += b"?" + draw(st.sampled_from((b"key", b"after", b"x"))) + b"=" + draw(_segments())
    head = b" HTTP/1.1\r\nHost: mq\r\nContent-Length: 2\r\nIdempotency-Key: "
    return method.encode() + b" " + path + head + draw(_segments()) + b"\r\n\r\n{}"


async def test_no_name_leads_out_of_the_root(fuzzed: Fuzzed, tmp_path: Path) -> None:
    root = fuzzed.server.root
    (tmp_path / "outside").write_text("outside")
    top = set(os.listdir(root))

    def throw(request: bytes) -> None:
        fuzzed.check(fuzzed.talk(request, ends=False))
        assert sorted(os.listdir(tmp_path)) == ["outside", "root"]
        assert set(os.listdir(root)) <= top | {"history", "crossings", "totals", "trends"}
        for queue in os.listdir(root / "queues"):
            assert QueueName.parse(queue).text == queue

    await asyncio.to_thread(fuzz(_asked(), throw, 300))
    assert (tmp_path / "outside").read_text() == "outside"
    assert all(_ONE_NAME.fullmatch(name) for path in tree(root) for name in path.split("/"))
