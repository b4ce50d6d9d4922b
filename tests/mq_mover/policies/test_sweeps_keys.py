"""Sweeping keys: of messages that are gone, of publishes of long ago, and of those never ended."""

import fcntl
import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from harness.faults import FaultyFiles
from harness.messages import new_id, put_entry, put_file

from mq.model.limits import FORGOTTEN_AFTER_S, IDEMPOTENCY_S_DEFAULT
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.keys.orphans import OrphanSweep

if TYPE_CHECKING:
    from tests.mq_mover.conftest import Bench


def link(bench: "Bench", target: str, key: str = "k", kind: str = "keys") -> Path:
    hashed = hashlib.sha256(key.encode()).hexdigest()[:2]
    path = bench.folder("queues/orders") / f".{kind}" / hashed / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)
    return path


@pytest.mark.parametrize("state", ["new", "queues/orders", "delay"])
def test_a_key_stays_while_its_message_lives(bench: "Bench", state: str) -> None:
    message_id = f"{new_id().text},k=k"
    kept = link(bench, message_id)
    bench.clock.advance(FORGOTTEN_AFTER_S + 1)
    name = message_id if "/" in state else f"orders:{message_id}"
    put_file(bench.folder(state) / name, due_ms=bench.clock.now_ms() + 10**7)
    # One in new/ is written still: its ctime is the machine's.
    if state == "new":
        bench.clock.set_ms(bench.clock.now_ms() - 10_000)
    bench.sweeper().run_once()
    assert os.path.lexists(kept)


@pytest.mark.parametrize("target", ["gone", "removed", "nobody's"])
def test_a_key_of_nothing_goes_when_no_publish_can_be_in_hand(bench: "Bench", target: str) -> None:
    message_id = f"{new_id().text},k=k"
    orphan = link(bench, "nobody's" if target == "nobody's" else message_id)
    if target == "removed":
        put_file(bench.folder("remove") / f"orders:{message_id}")
    bench.clock.advance(FORGOTTEN_AFTER_S - 10)
    bench.sweeper().run_once()
    assert os.path.lexists(orphan)
    bench.clock.advance(70)
    bench.sweeper().run_once()
    assert not os.path.lexists(orphan)


def test_an_idempotency_key_goes_when_its_time_is_over(bench: "Bench") -> None:
    message_id = new_id().text
    put_file(bench.ready / message_id, due_ms=1)
    old = link(bench, message_id, kind="idempotency")
    bench.clock.advance(IDEMPOTENCY_S_DEFAULT - 10)
    sweeper = bench.sweeper()
    sweeper.run_once()
    assert os.path.lexists(old)
    bench.clock.advance(60)
    sweeper.run_once()
    assert not os.path.lexists(old)


def test_what_is_no_link_stays(bench: "Bench") -> None:
    folder = link(bench, new_id().text).parent
    others = [put_file(folder / name) for name in ("notes", ".lock")]
    others.append(put_file(folder.parent / "README"))
    (folder / "a.b").symlink_to("nowhere")
    bench.clock.advance(FORGOTTEN_AFTER_S + 60)
    bench.sweeper().run_once()
    assert all(path.exists() for path in others)
    assert os.path.lexists(folder / "a.b")
    assert not os.path.lexists(folder / "k")


def test_a_locked_folder_is_left_to_a_later_pass(bench: "Bench") -> None:
    orphan = link(bench, new_id().text)
    bench.clock.advance(FORGOTTEN_AFTER_S + 60)
    sweeper = bench.sweeper()
    with (orphan.parent / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        sweeper.run_once()
        assert os.path.lexists(orphan)
    bench.clock.advance(60)
    sweeper.run_once()
    assert not os.path.lexists(orphan)


def test_a_pass_ends_and_the_next_goes_on(bench: "Bench") -> None:
    orphans = [link(bench, new_id().text, f"key{n}") for n in range(60)]
    bench.clock.advance(FORGOTTEN_AFTER_S + 60)
    sweep = OrphanSweep(bench.root, limit=10)
    went = []
    while not went or went[-1]:
        went.append(run_alone(sweep.sweep(), NoFlusher()))
    assert sum(went) == len(orphans)
    assert len(went) > 4
    assert not any(os.path.lexists(path) for path in orphans)


def test_what_is_forgotten_loses_its_idempotency_key_first(bench: "Bench") -> None:
    torn = put_entry(bench.folder("new"), body=b"to")
    key = link(bench, torn.name.partition(":")[2], kind="idempotency")
    other = link(bench, new_id().text, "other", kind="idempotency")
    bench.clock.advance(FORGOTTEN_AFTER_S + 60)
    # While a link cannot be taken away, its file stays.
    for path in (key, other):
        os.utime(path, ns=((bench.clock.now_ms() * 10**6),) * 2, follow_symlinks=False)
    sweeper = bench.sweeper()
    with (key.parent / ".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert sweeper.run_once() == 0
        assert torn.exists()
    bench.clock.advance(60)
    assert sweeper.run_once() == 1
    assert not os.path.lexists(key)
    assert os.path.lexists(other)
    assert bench.removed(torn).exists()


def test_a_pass_looks_at_some_queues(bench: "Bench") -> None:
    """And those after it at the others, however many have no keys."""
    for number in range(30):
        bench.folder(f"queues/q{number}").mkdir()
    old = link(bench, new_id().text)
    bench.clock.advance(FORGOTTEN_AFTER_S + 60)
    sweep, passes = OrphanSweep(bench.root, limit=10), []
    while os.path.lexists(old):
        passes.append(run_alone(sweep.sweep(), NoFlusher()))
        assert len(passes) < 31
    assert sum(passes) == 1
    files = FaultyFiles()
    sweep = OrphanSweep(replace(bench.root, files=files), limit=10)
    run_alone(sweep.sweep(), NoFlusher())
    of_queues = (path.partition("/queues/")[2] for _, path in files.calls)
    assert 0 < len({each.partition("/")[0] for each in of_queues if each}) < 10
