"""Messages as files made by hand, and bodies that prove what they are."""

import hashlib
import os
from pathlib import Path

from mq.model.clock import SystemClock
from mq.model.headers import FIRED_BY, GROUPED_BY, TAGS, Headers, parse_block
from mq.model.message import Stamp
from mq.model.names import MessageId, UuidSource
from mq.sqs.stored import SYSTEM
from mq.store.disk.files import FILE_MODE

_uuids = UuidSource(SystemClock())


def new_id() -> MessageId:
    return MessageId(_uuids.next())


def put_file(path: Path, body: bytes = b"", due_ms: int | None = None, receives: int = 0) -> Path:
    """A message's file under this path; without `due_ms` its mtime is nobody's."""
    path.write_bytes(body)
    path.chmod(FILE_MODE)
    if due_ms is not None:
        set_due(path, due_ms, receives)
    return path


def put_entry(
    folder: Path,
    queue: str = "orders",
    body: bytes = b"",
    due_ms: int | None = None,
    receives: int = 0,
) -> Path:
    """A message's file as new/, delay/ and remove/ have them."""
    return put_file(folder / f"{queue}:{new_id().text}", body, due_ms, receives)


def set_due(path: Path, due_ms: int, receives: int = 0) -> None:
    """What whoever extends a message does to its file."""
    mtime_ns = Stamp(due_ms, receives).mtime_ns()
    os.utime(path, ns=(mtime_ns, mtime_ns))


def ctime_ms(path: Path) -> int:
    return path.stat().st_ctime_ns // 1_000_000


def make_body(number: int, size: int = 64) -> bytes:
    """A body with a number of its own, filled up, and a checksum over both."""
    filling = b"%d." % number
    content = b"%d:" % number + filling * (size // len(filling))
    return hashlib.sha256(content).hexdigest().encode() + b":" + content


def number_in(body: bytes) -> int:
    """The body's number. AssertionError when the body is torn or was never made here."""
    checksum, _, content = body.partition(b":")
    assert hashlib.sha256(content).hexdigest().encode() == checksum, f"torn: {body[:100]!r}"
    return int(content.partition(b":")[0])


def make_headers(number: int) -> Headers:
    """The headers that a message of this number has beside its body, over a page of them."""
    return (
        ("ce-id", str(number)),
        ("X-Attribute-Filling", f"{number} ü," * (5000 // len(f"{number} ü,"))),
        ("Content-Type", "text/plain; charset=utf-8"),
    )


def number_in_file(content: bytes, message_id: str) -> int:
    """The number of the body in a message's file. AssertionError when the body is torn, or its
    headers are there and are not its own.
    """
    head_bytes = MessageId.parse(message_id).header_bytes
    number = number_in(content[head_bytes:])
    if head_bytes:
        check_headers(parse_block(content[:head_bytes]), number)
    return number


def check_headers(headers: Headers, number: int) -> None:
    """That these are all that a message of this number has, beside those of a firing, a group and
    SQS, which it may have alone.
    """
    own = tuple(each for each in headers if each[0] not in (FIRED_BY, GROUPED_BY, TAGS, SYSTEM))
    has_others = len(own) < len(headers)
    assert own == make_headers(number) or (has_others and not own), (
        f"{number} has other headers: {str(headers)[:300]}"
    )
