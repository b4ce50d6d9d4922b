"""Reading ready messages' bodies before anybody fetches them. Nothing on disk changes, no lock is
taken: what a message's file has never changes, and whoever claims it looks at its size.
"""

import contextlib
import stat
from collections.abc import Iterable, Iterator

from mq.model.errors import MqError
from mq.model.headers import parse_block
from mq.model.lifecycle import State
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.message import Held
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.scan.order import Candidate


def read_ahead(
    root: Root, queue: QueueName, candidates: Iterable[Candidate], bytes_max: int
) -> tuple[list[tuple[str, Held]], float]:
    """Those of the candidates that could be read, by their names, as long as all together have no
    more than `bytes_max` bytes; and how many seconds it took. Blocking.
    """
    began_s = root.clock.steady_s()
    found: list[tuple[str, Held]] = []
    left = bytes_max
    for candidate in candidates:
        held = None
        with contextlib.suppress(OSError, MqError):  # Whoever fetches it finds out why.
            held = _read(root, queue, candidate, left)
        if held is not None:
            found.append((candidate.name, held))
            left -= held.head_bytes + len(held.body)
        if left <= 0:
            break
    return found, root.clock.steady_s() - began_s


def _read(root: Root, queue: QueueName, candidate: Candidate, bytes_max: int) -> Held | None:
    files, message_id = root.files, candidate.id
    for bucket in _spots(root, queue, message_id, candidate.bucket):
        try:
            descriptor = files.open_read(root.layout.path(State.READY, queue, message_id, bucket))
        except FileNotFoundError:
            continue
        try:
            status = files.descriptor_status(descriptor)
            head_bytes, size = message_id.header_bytes, status.st_size - message_id.header_bytes
            fits = 0 <= size <= BODY_HELD_BYTES_MAX and status.st_size <= bytes_max
            if not stat.S_ISREG(status.st_mode) or not fits:
                return None
            block = files.read(descriptor, head_bytes, 0) if head_bytes else b""
            body = files.read(descriptor, size, head_bytes)
        finally:
            files.close(descriptor)
        if len(body) != size or len(block) != head_bytes:
            return None
        return Held(parse_block(block) if block else (), body, head_bytes)
    return None


def _spots(
    root: Root, queue: QueueName, message_id: MessageId, bucket: str | None
) -> Iterator[str]:
    if bucket is not None:
        yield bucket
    else:
        yield from root.places.spots(State.READY, queue, message_id)
