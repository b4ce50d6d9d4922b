"""The queues that a bench writes to disk are queues as mq has them."""

import itertools
import os
from collections import Counter
from pathlib import Path

import pytest
from harness.audits import audit, looked_at
from hypothesis import given
from hypothesis import strategies as st

from deploy.bench.backlog import SHARD_FILES, Backlog, write_backlog
from mq.model.clock import SystemClock
from mq.model.lifecycle import State
from mq.model.names import MessageId
from mq.store.disk.files import Files
from mq.store.opening import open_root

BEGAN_MS = 1_767_225_600_000

backlogs = st.builds(
    Backlog,
    messages=st.integers(1, 400),
    per_s=st.sampled_from([1, 3, 10, 200, 1000, 40_000]),
    began_ms=st.integers(BEGAN_MS, BEGAN_MS + 100_000),
    shard_files=st.sampled_from([5, 20, 1000]),
)


@given(backlogs)
def test_ids_rise_and_say_when(backlog: Backlog) -> None:
    ids = [MessageId.parse(backlog.id(number)) for number in range(backlog.messages)]
    assert all(earlier.text < later.text for earlier, later in itertools.pairwise(ids))
    times = [message_id.published_ms for message_id in ids]
    assert times[0] == backlog.began_ms
    lasted_ms = (backlog.messages - 1) * 1000 / backlog.per_s
    assert lasted_ms - 1 < times[-1] - times[0] <= lasted_ms


@given(backlogs)
def test_places_follow_from_ids_and_fill_in_their_order(backlog: Backlog) -> None:
    filled: Counter[str] = Counter()
    for number in range(backlog.messages):
        digits, folder = backlog.id(number).replace("-", ""), backlog.folder(number)
        if filled[""] < backlog.shard_files:
            assert folder == ""
        elif filled[digits[:8]] < backlog.shard_files:
            assert folder == digits[:8]
        else:
            assert folder == f"{digits[:8]}/{digits[8:10]}"
        filled[folder] += 1


@pytest.mark.parametrize("shard_files", [SHARD_FILES, 30_000])
def test_what_is_written_audits_clean(tmp_path: Path, shard_files: int) -> None:
    open_root(str(tmp_path), Files(), SystemClock())
    queue = tmp_path / "queues" / "bench"
    queue.mkdir(0o700)
    backlog = Backlog.until_now(20_100, 200, shard_files)
    write_backlog(queue, backlog, 2)
    found = audit(looked_at(tmp_path))
    assert found.is_clean, found.violations
    assert found.foreign == 0
    assert found.messages[State.READY] == 20_100
    names = sorted(name for _, _, names in os.walk(queue) for name in names)
    assert names == list(backlog.ids(20_100))
