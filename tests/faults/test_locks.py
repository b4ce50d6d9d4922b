"""What a request changes of a message's file it changes under the lock of its inode, and keeps that
until the change is on stable media: a process that is stopped in between keeps its claim.
"""

import pytest
from faults.requests import REQUESTS, Request
from harness.server import Serve

from mq.store.files import Files

# What is released is anyone's from its rename on, flushed or not.
RELEASES = ("release", "release-scheduled")


class WatchedFiles(Files):
    """Keeps which calls were made on a message's file while its lock was not held."""

    def __init__(self) -> None:
        super().__init__()
        self.unlocked: list[str] = []
        self.seen: set[str] = set()
        self._is_held: dict[int, bool] = {}

    def open_claimed(self, path: str) -> int:
        descriptor = super().open_claimed(path)
        self._is_held[descriptor] = False
        return descriptor

    def lock(self, descriptor: int) -> bool:
        took = super().lock(descriptor)
        if descriptor in self._is_held:
            self._is_held[descriptor] = took
        return took

    def unlock(self, descriptor: int) -> None:
        if descriptor in self._is_held:
            self._is_held[descriptor] = False
        super().unlock(descriptor)

    def stamp(self, descriptor: int, mtime_ns: int) -> None:
        self._look("stamp", descriptor)
        super().stamp(descriptor, mtime_ns)

    def sync(self, descriptor: int) -> None:
        self._look("sync", descriptor)
        super().sync(descriptor)

    def close(self, descriptor: int) -> None:
        self._is_held.pop(descriptor, None)
        super().close(descriptor)

    def _look(self, call: str, descriptor: int) -> None:
        if (is_held := self._is_held.get(descriptor)) is not None:
            self.seen.add(call)
            if not is_held:
                self.unlocked.append(call)


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
async def test_a_message_is_stamped_and_flushed_under_its_lock(
    serve: Serve, request_: Request
) -> None:
    files = WatchedFiles()
    server = await serve(files=files, commit="fsync")
    case = request_.case(server, "q")
    await request_.prepare(case)
    files.unlocked.clear()
    files.seen.clear()
    reply = await request_.send(case)
    assert reply.status in request_.success
    assert set(files.unlocked) == ({"sync"} if request_.name in RELEASES else set())
    if request_.name in ("fetch", "postpone", "extend", "release", "sideline"):
        assert files.seen == {"stamp", "sync"}
