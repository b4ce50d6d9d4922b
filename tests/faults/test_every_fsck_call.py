"""Every call of a repair fails once: the message is there, whole, all the while, and the next fsck
puts it right.
"""

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.audits import looked_at
from harness.checking import checked
from harness.damage.each_breach import Place, keyed, misplaced
from harness.faults import FlushedInCalls
from harness.messages import put_file

from mq.store.disk.flush import FsyncFlusher
from mq.tools.fsck.checking import Doing

# What a repair calls beside the looks of an audit, and how that fails.
CALLS = {
    errno.EIO: ("rename", "unlink", "sync", "sync_folder", "stamp", "link", "mkdir", "set_mode"),
    errno.ENOSPC: ("rename", "mkdir", "link"),
    errno.ESTALE: ("rename", "open_claimed", "unlink"),
    errno.EMFILE: ("open_claimed", "open_kept"),
}
CASES = [(code, call) for code, calls in CALLS.items() for call in calls]
CALLS_MAX = 50
BODY = b"the body"


def two_names(place: Place) -> None:
    path = place.ready(BODY)
    other = place.top / "delay" / f"orders:{path.name}"
    os.link(path, other)
    os.utime(other, ns=((place.clock.now_ms() + 10**6) * 10**6,) * 2)


def two_files(place: Place) -> None:
    path = place.ready(b"another body")
    due_ms = place.clock.now_ms() + 10**6
    put_file(place.top / "delay" / f"orders:{path.name}", BODY, due_ms)


def second_of_a_key(place: Place) -> None:
    keyed(place, place.ready(more=",k=night").name)
    place.ready(BODY, ",k=night")


def no_queue(place: Place) -> None:
    put_file(place.entry("delay"), BODY, place.clock.now_ms() + 10**6)
    place.queue.rmdir()


def a_link(place: Place) -> None:
    place.ready(BODY)
    (place.queue / "x").symlink_to("nowhere")


def an_odd_time(place: Place) -> None:
    os.utime(place.ready(BODY), ns=(1_700_000_000_123_456_789,) * 2)


DAMAGES: dict[str, Callable[[Place], object]] = {
    "misplaced": lambda place: misplaced(place, place.ready(BODY), "queues/orders"),
    "two-names": two_names,
    "two-files": two_files,
    "second-of-a-key": second_of_a_key,
    "no-link": lambda place: place.ready(BODY, ",k=night"),
    "no-queue": no_queue,
    "unreadable": lambda place: place.ready(BODY, ",h=100"),
    "a-link": a_link,
    "mtime": an_odd_time,
    "mode": lambda place: place.ready(BODY).chmod(0o640),
}


def bodies(top: Path) -> set[bytes]:
    states = ("queues", "delay", "leases", "lost")
    paths = [path for state in states for path in (top / state).rglob("*")]
    return {path.read_bytes() for path in paths if path.is_file() and not path.is_symlink()}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_every_call_of_a_repair_may_fail(tmp_path: Path, damage: Callable[[Place], object]) -> None:
    hits = sum(failed_so(tmp_path / "root", damage, code, call) for code, call in CASES)
    assert hits


def failed_so(top: Path, damage: Callable[[Place], object], code: int, call: str) -> int:
    """How many such calls there are, each of which has failed."""
    for number in range(CALLS_MAX):
        place = Place(top, FlushedInCalls())
        damage(place)
        files = FlushedInCalls()
        flusher = FsyncFlusher(files, 1)
        fault = files.fail(call, code, times=1, after=number)
        checked(looked_at(place.top, place.clock, files), Doing.REPAIR, flusher=flusher)
        files.heal()
        said = f"{fault}"
        assert BODY in bodies(place.top), said
        assert files.retried == [], said
        assert files.open_paths() == [], said
        if fault.hits:
            after = checked(looked_at(place.top, place.clock), Doing.REPAIR)
            assert after.remaining.examples == [], said
            assert BODY in bodies(place.top), said
        flusher.close()
        shutil.rmtree(place.top)
        if not fault.hits:
            return number
    raise AssertionError("work without an end")
