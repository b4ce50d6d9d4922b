"""What fsck puts right, each in a script like those of `scripts.py`: what is broken is broken by a
hand, durably, and put right beside the daemons.
"""

import asyncio
import os
from pathlib import Path

from crash.key_scripts import KEY
from crash.registry import script
from crash.sideline_scripts import SIDELINE
from crash.stage import LATER_S, ORDERS, SOON_S, Stage
from harness.audits import looked_at
from harness.checking import checked
from harness.clock import FakeClock
from harness.messages import new_id, put_file

from mq.model.lifecycle import State
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.tools.fsck.checking import Doing
from mq.tools.fsck.report import Outcome


async def _begin(on: Stage, *more: str) -> None:
    """As in `first_start`, which is cut there too."""
    await on.start()
    for queue in (ORDERS, *more):
        await on.clients.make(queue)


def _broken(on: Stage, *folders: str) -> None:
    """By a hand that flushes what it did: no cut is made before that."""
    for folder in folders:
        Files().sync_folder(str(on.root / folder))
    on.disk.mark("broken")
    on.known()


async def _put_right(on: Stage) -> None:
    """By an operator, who makes and tries nothing before."""

    def work() -> None:
        clock = FakeClock()
        clock.advance(on.disk.ahead_s)
        flusher = FsyncFlusher(Files(), 2)
        report = checked(looked_at(on.root, clock), Doing.REPAIR, flusher=flusher)
        assert report.outcome is Outcome.PUT_RIGHT, report.remaining.examples
        flusher.close()

    await asyncio.to_thread(work)


async def _deleted(on: Stage, queue: str = ORDERS) -> None:
    on.disk.mark("fetch_asked", queue=queue)
    message_id = await on.clients.fetch(queue)
    assert message_id is not None
    await on.clients.delete(message_id, queue)


@script()
async def fsck_misplaced(on: Stage) -> None:
    await _begin(on)
    message_id = await on.clients.publish(300)
    folder = on.root / "queues" / ORDERS / "00000000"
    folder.mkdir(mode=0o700, exist_ok=True)
    os.rename(on.ready(message_id), folder / message_id)
    _broken(on, f"queues/{ORDERS}", f"queues/{ORDERS}/00000000")
    await _put_right(on)
    on.moved(message_id, State.READY)
    await _deleted(on)


@script()
async def fsck_two_files(on: Stage) -> None:
    """What was removed, and somebody has copied back."""
    await _begin(on)
    message_id = await on.clients.publish(300)
    ready = on.ready(message_id)
    await on.clients.delete(message_id)
    _copied(on.removed(message_id), ready)
    _broken(on, f"queues/{ORDERS}")
    await _put_right(on)
    on.disk.mark("deleted", queue=ORDERS, id=message_id)


def _copied(source: Path, target: Path) -> None:
    put_file(target, source.read_bytes())
    status = source.stat()
    os.utime(target, ns=(status.st_mtime_ns,) * 2)
    _synced(target)


def _synced(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)


@script()
async def fsck_mtime(on: Stage) -> None:
    await _begin(on)
    message_id = await on.clients.publish(300, due_in_s=SOON_S)
    path = on.delayed(message_id)
    odd_ns = path.stat().st_mtime_ns + 123
    os.utime(path, ns=(odd_ns, odd_ns))
    _synced(path)
    _broken(on)
    await _put_right(on)
    on.disk.pass_time(LATER_S)
    await on.move_due()
    on.moved(message_id, State.READY)


@script()
async def fsck_link_of_nobody(on: Stage) -> None:
    """A living message whose key's link is away: nobody else may get the key meanwhile."""
    await _begin(on)
    message_id = await on.clients.publish_keyed(300, KEY)
    (link,) = (path for path in (on.root / "queues").glob("*/.keys/*/*") if path.is_symlink())
    link.unlink()
    _broken(on, str(link.parent.relative_to(on.root)))
    await _put_right(on)
    assert os.readlink(link) == message_id
    await _deleted(on)


@script()
async def fsck_queue_that_a_hand_took(on: Stage) -> None:
    await _begin(on)
    message_id = await on.clients.publish(300, due_in_s=SOON_S)
    await on.stop()
    (on.root / "queues" / ORDERS).rmdir()
    on.disk.mark("make_asked", queue=ORDERS)
    _broken(on, "queues")
    await _put_right(on)
    on.disk.mark("made", queue=ORDERS)
    await on.start()
    on.disk.pass_time(LATER_S)
    await on.move_due()
    on.moved(message_id, State.READY)
    await _deleted(on)


@script()
async def fsck_unreadable(on: Stage) -> None:
    """Beside one that is whole; it never was acknowledged as it is."""
    await _begin(on, SIDELINE)
    await on.clients.publish(300)
    torn = put_file(on.root / "queues" / ORDERS / f"{new_id().text},h=99", b"short")
    os.utime(torn, ns=(10**15, 10**15))
    _synced(torn)
    _broken(on, f"queues/{ORDERS}")
    await _put_right(on)
    (on.root / "queues" / SIDELINE / torn.name).unlink()
    _broken(on, f"queues/{SIDELINE}")
    await _deleted(on)


@script()
async def fsck_folder(on: Stage) -> None:
    await _begin(on)
    (on.root / "shovels").rmdir()
    _broken(on, ".")
    await _put_right(on)
    await on.clients.publish(300)
