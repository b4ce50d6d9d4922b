"""Every call of the sweep of what is overdue fails once: the message is in one place, whole, all
the while, and the next pass has it where it belongs.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.audits import assert_audits_clean, looked_at
from harness.clock import FakeClock
from harness.faults import FaultyFiles, each_disk_error
from harness.folders import message_files
from harness.messages import new_id, put_file
from harness.upkeep import work_of

from mq.model.errors import MqError
from mq.model.expiry import Passing
from mq.model.names import QueueName
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher, NoFlusher, SyncfsFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue
from mq_mover.policies.overdue import OVERDUE_EVERY_S, Overdue

CALLS_MAX = 200
QUEUE = QueueName("orders")
SIDELINE = QUEUE.sideline()
BODY = b"the body"
HOUR_S = 3600


def places(path: Path, message_id: str) -> list[str]:
    """Where the message is."""
    return [
        f"{state}/{name.partition(':')[0]}"
        for state, names in message_files(path).items()
        for name in names
        if name.endswith(message_id)
    ]


def overdue_of(root: Root, flusher: Any) -> Overdue:
    """Of a member whose redelivery has passed for a day."""
    now_ms = root.now_ms()
    passing = Passing(now_ms - 25 * HOUR_S * 1000, now_ms)
    return Overdue(replace(work_of(root, flusher), passing=lambda: passing))


def tried(policy: Overdue) -> None:
    """What it raises is what the policies' round catches."""
    try:
        policy.act()
    except (OSError, MqError):
        return


@each_disk_error()
@pytest.mark.parametrize(
    ("queue", "makes"),
    [(QUEUE, False), (QUEUE, True), (SIDELINE, False)],
    ids=["sweep", "the-first", "back-to-the-sideline"],
)
def test_every_call_of_a_sweep_may_fail(
    tmp_path: Path, queue: QueueName, makes: bool, codes: Sequence[int], commit: str
) -> None:
    before, after = f"delay/{queue.text}", f"queues/{SIDELINE.text}"
    for number in range(CALLS_MAX):
        path, clock, files = tmp_path / str(number), FakeClock(), FaultyFiles()
        root = open_root(str(path), files, clock)
        for made in (QUEUE,) if makes else (QUEUE, SIDELINE):
            run_alone(create_queue(looked_at(path), made), NoFlusher())
        message_id = new_id().text
        put_file(path / "delay" / f"{queue.text}:{message_id}", BODY, clock.now_ms() - 10**6, 2)
        clock.advance(24 * HOUR_S)
        flusher = FsyncFlusher(files, 1) if commit == "fsync" else SyncfsFlusher(files, str(path))
        policy = overdue_of(root, flusher)
        fault = files.fail("", codes[number % len(codes)], times=1, after=number)
        tried(policy)
        files.heal()
        found = places(path, message_id)
        said = f"{fault} left it in {found}"
        assert found in ([before], [after]), said
        assert files.retried == [], said
        assert files.open_paths() == [], said
        assert_audits_clean(path)
        clock.advance(OVERDUE_EVERY_S)
        tried(policy)
        assert places(path, message_id) == [after], said
        (there,) = (path / "queues" / SIDELINE.text).iterdir()
        assert there.read_bytes() == BODY
        flusher.close()
        if not fault.hits:
            return
    raise AssertionError("work without an end")
