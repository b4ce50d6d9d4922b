"""All that can be asked of a queue, and all that time does in a root."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from harness.api import UNKNOWN_ID, Reply, call
from harness.clock import FakeClock
from harness.server import Server

from mq.coordination.coordinator import Alone
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.opening import open_root
from mq.store.operations.redeliver import Timer
from mq_mover.rounds import Rounds
from mq_reaper.reaper import Reaper

# More than there are policies, each with a turn of its own.
_ROUNDS = 15


async def ask_all(server: Server, queue: str, message_id: str = UNKNOWN_ID) -> list[Reply]:
    """Each request that there is, about this queue; none may fail in a way that nobody foresaw."""
    messages, one = f"/{queue}/messages", f"/{queue}/messages/{message_id}"
    again = {"headers": {"Idempotency-Key": "night"}}
    asked = [
        await call(server, "PUT", f"/{queue}"),
        await call(server, "GET", f"/{queue}"),
        await call(server, "POST", messages, data=b"plain"),
        await call(server, "POST", f"{messages}?key=night", data=b"keyed"),
        await call(server, "POST", messages, data=b"idempotent", **again),
        await call(server, "POST", f"{messages}?delay=1", data=b"later"),
        await call(server, "GET", one),
        await call(server, "GET", f"{one}/history"),
        await call(server, "GET", f"/{queue}/keys/night"),
        await call(server, "PATCH", one, json={"visibility": 5}),
        await call(server, "POST", f"{one}/sideline"),
        await call(server, "DELETE", one),
        await call(server, "GET", messages),
        await call(server, "GET", messages),
        await call(server, "PATCH", f"/{queue}/settings", json={"history": True}),
        await call(server, "POST", messages, data=b"recorded"),
        await call(server, "GET", f"/{queue}/settings"),
        await call(server, "PUT", f"/{queue}/schedules/nightly?every=60", data=b"again"),
        await call(server, "GET", f"/{queue}/schedules/nightly"),
        await call(server, "GET", f"/{queue}/schedules"),
        await call(server, "POST", f"/{queue}/shovel"),
        await call(server, "GET", f"/{queue}/shovel"),
        await call(server, "GET", "/-/queues"),
        await call(server, "GET", "/-/trends"),
        await call(server, "GET", f"/-/trends?range=week&queue={queue}"),
        await call(server, "GET", "/-/members"),
        await call(server, "GET", "/-/readyz"),
        await call(server, "POST", "/-/refresh"),
    ]
    peeks = [f"/{queue}/peek?state={state}&count=100" for state in ("ready", "delayed")]
    return [*asked, *[await call(server, "GET", peek) for peek in peeks]]


async def end_all(server: Server, queue: str) -> list[Reply]:
    """What takes a queue's messages away, and then the queue."""
    return [
        await call(server, "DELETE", f"/{queue}/keys/night"),
        await call(server, "DELETE", f"/{queue}/schedules/nightly"),
        await call(server, "DELETE", f"/{queue}/messages"),
        await call(server, "DELETE", f"/{queue}"),
        await call(server, "PUT", f"/{queue}"),
        await call(server, "POST", f"/{queue}/messages", data=b"made again"),
        await call(server, "GET", f"/{queue}/messages"),
    ]


class Upkeep:
    """An mq-mover and an mq-reaper over a root, under a clock that is ahead of its files."""

    def __init__(self, top: Path, files: Files) -> None:
        self.clock = FakeClock()
        self.clock.advance(7200)
        self._root = open_root(str(top), files, self.clock, folder_max=3)
        self._flusher = FsyncFlusher(files, threads=2)
        self._reaper = Reaper(files, self.clock, f"{top}/remove", 0)
        self._rounds: Rounds | None = None

    def pass_time(self) -> None:
        """Each policy has several turns, and what was removed goes."""
        if self._rounds is None:
            self._rounds = Rounds(self._root, self._flusher, Alone("a"), Timer())
            with contextlib.suppress(OSError):
                self._rounds.start()
        for _ in range(_ROUNDS):
            # What cannot be listed is said, and tried again.
            with contextlib.suppress(OSError):
                self._rounds.run_once()
            with contextlib.suppress(OSError):
                self._reaper.run_once()
            self.clock.advance(600)

    def end(self) -> None:
        if self._rounds is not None:
            self._rounds.stop()
        self._flusher.close()


@contextlib.contextmanager
def upkeep(top: Path, files: Files | None = None) -> Iterator[Upkeep]:
    made = Upkeep(top, files or Files())
    try:
        yield made
    finally:
        made.end()


def now(path: str, message_id: str) -> str:
    """The path of something in a root, with the bucket of this id, and today's date."""
    digits = message_id.replace("-", "")
    before, today = f"{int(digits[:8], 16) - 1:08x}", time.strftime("%Y-%m-%d", time.gmtime())
    named = {"id": message_id, "bucket": digits[:8], "deep": digits[8:10]}
    return path.rstrip("/").format(**named, bucket_before=before, today=today)


def make_room(path: Path) -> None:
    """Nothing has the name, and its folder is there."""
    if path.is_dir():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
