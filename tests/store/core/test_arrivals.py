"""What the kernel tells of queues' folders: by real folders, and another process's hand."""

import json
import os
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.clock import FakeClock

from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.core.arrivals import ARRIVALS_READ_BYTES, Arrivals, News
from mq.store.format.layout import Layout

ORDERS, BILLS = QueueName.parse("orders"), QueueName.parse("bills")
SOON_S = 10.0

# Renames what it is told, a pair a line, and says when it has.
_RENAMES = """
import json, os, sys
for line in sys.stdin:
    os.rename(*json.loads(line))
    print(flush=True)
"""


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    for name in ("new", "queues/orders", "queues/bills", "delay", "remove"):
        (tmp_path / name).mkdir(parents=True)
    return Layout.of(tmp_path)


@pytest.fixture
def arrivals(layout: Layout) -> Iterator[Arrivals]:
    made = Arrivals(layout)
    yield made
    made.close()


@pytest.fixture
def ids() -> Iterator[MessageId]:
    source = UuidSource(FakeClock())
    return iter(lambda: MessageId(source.next()), None)


def publish(layout: Layout, queue: QueueName, message_id: MessageId) -> None:
    """As a publish does it: written elsewhere, then renamed."""
    new = Path(layout.new, f"{queue.text}:{message_id.text}")
    new.write_bytes(b"x")
    new.rename(Path(layout.queue(queue), message_id.text))


def news(arrivals: Arrivals) -> News:
    """Waits until there is some, and reads it."""
    assert select.select([arrivals], [], [], SOON_S)[0], "there was no news"
    return arrivals.read()


def everything(arrivals: Arrivals) -> Iterator[News]:
    """All that is known by now."""
    while (read := arrivals.read()) != News():
        yield read


def test_what_another_process_renames_to_a_queue_is_told_in_its_order(
    layout: Layout, arrivals: Arrivals, ids: Iterator[MessageId]
) -> None:
    assert arrivals.watch(ORDERS)
    sent = [next(ids), MessageId(next(ids).uuid, priority=9, extension="json"), next(ids)]
    with subprocess.Popen(
        [sys.executable, "-c", _RENAMES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        for each in sent:
            new = Path(layout.new, f"orders:{each.text}")
            new.write_bytes(b"x")
            print(json.dumps([str(new), f"{layout.queue(ORDERS)}/{each.text}"]), file=other.stdin)
            other.stdin.flush()
            other.stdout.readline()
            assert news(arrivals).arrived == {ORDERS: [each]}
        other.stdin.close()
    assert arrivals.read() == News()


def test_what_goes_is_told_where_that_is_asked_for(
    layout: Layout, ids: Iterator[MessageId]
) -> None:
    arrivals = Arrivals(layout, has_departures=True)
    assert arrivals.watch(ORDERS)
    gone, back, stays = next(ids), next(ids), next(ids)
    for each in (gone, back, stays):
        publish(layout, ORDERS, each)
    for each in (gone, back):
        claimed = Path(layout.queue(ORDERS), each.text).rename(layout.new + "/claimed")
        if each is back:
            claimed.rename(Path(layout.queue(ORDERS), each.text))
    told = news(arrivals)
    assert told.arrived == {ORDERS: [stays, back]}
    assert told.left == {ORDERS: [gone.text, back.text]}
    assert told.passed == {ORDERS: [gone, back]}
    arrivals.close()


def test_each_queue_has_its_own_and_one_that_is_not_watched_has_none(
    layout: Layout, arrivals: Arrivals, ids: Iterator[MessageId]
) -> None:
    first, second, third, unheard = (next(ids) for _ in range(4))
    assert arrivals.watch(ORDERS)
    publish(layout, BILLS, unheard)
    assert arrivals.watch(BILLS)
    publish(layout, BILLS, first)
    publish(layout, ORDERS, second)
    publish(layout, BILLS, third)
    assert arrivals.read().arrived == {BILLS: [first, third], ORDERS: [second]}
    arrivals.unwatch(BILLS)
    assert not arrivals.is_watched(BILLS)
    publish(layout, BILLS, next(ids))
    assert arrivals.read() == News()
    assert len(arrivals) == 1


def test_foreign_names_dotfiles_and_half_written_files_are_no_news(
    layout: Layout, arrivals: Arrivals, ids: Iterator[MessageId]
) -> None:
    arrivals.watch(ORDERS)
    folder = Path(layout.queue(ORDERS))
    for name in (".hidden", "no-id", f"{next(ids).text},p=0", "\udcff"):
        new = Path(layout.new, "foreign")
        new.write_bytes(b"x")
        new.rename(os.path.join(folder, name))
    (folder / next(ids).text).write_bytes(b"half of it")
    assert not arrivals.read().arrived
    claimed = next(ids)
    publish(layout, ORDERS, claimed)
    arrivals.read()
    os.rename(folder / claimed.text, f"{layout.delay}/orders:{claimed.text}")
    assert arrivals.read() == News()


def test_a_bucket_is_a_reason_to_look(layout: Layout, arrivals: Arrivals) -> None:
    arrivals.watch(ORDERS)
    Path(layout.queue(ORDERS), "0192f3a2").mkdir()
    assert arrivals.read() == News(changed={ORDERS})
    fold = Path(layout.new, "fold")
    fold.mkdir()
    fold.rename(Path(layout.queue(ORDERS), "0192f3a3"))
    assert arrivals.read() == News(changed={ORDERS})
    assert arrivals.is_watched(ORDERS)


@pytest.mark.parametrize("how", ["moved to remove/", "taken away"])
def test_a_deleted_queue_is_told_and_watched_no_more_until_it_is_made_again(
    layout: Layout, arrivals: Arrivals, ids: Iterator[MessageId], how: str
) -> None:
    arrivals.watch(ORDERS)
    went = Path(layout.remove, "orders.d")
    if how == "taken away":
        Path(layout.queue(ORDERS)).rmdir()
    else:
        Path(layout.queue(ORDERS)).rename(went)
    read = arrivals.read()
    assert read.changed == read.gone == {ORDERS}
    assert not arrivals.is_watched(ORDERS)
    assert not arrivals.watch(ORDERS)
    Path(layout.queue(ORDERS)).mkdir()
    assert arrivals.watch(ORDERS)
    if went.exists():
        (went / next(ids).text).write_bytes(b"x")
        shutil.rmtree(went)
    sent = next(ids)
    publish(layout, ORDERS, sent)
    assert [each.arrived for each in everything(arrivals) if each.arrived] == [{ORDERS: [sent]}]


def test_a_queue_made_again_before_anything_was_read_is_watched_by_its_new_folder(
    layout: Layout, arrivals: Arrivals, ids: Iterator[MessageId]
) -> None:
    arrivals.watch(ORDERS)
    Path(layout.queue(ORDERS)).rename(Path(layout.remove, "orders.d"))
    Path(layout.queue(ORDERS)).mkdir()
    assert arrivals.watch(ORDERS)
    sent = next(ids)
    publish(layout, ORDERS, sent)
    told = list(everything(arrivals))
    assert [each.arrived for each in told if each.arrived] == [{ORDERS: [sent]}]
    assert not any(each.gone for each in told)
    assert arrivals.is_watched(ORDERS)


def test_watching_again_tells_nothing_twice(
    layout: Layout, arrivals: Arrivals, ids: Iterator[MessageId]
) -> None:
    assert arrivals.watch(ORDERS)
    assert arrivals.watch(ORDERS)
    assert len(arrivals) == 1
    sent = next(ids)
    publish(layout, ORDERS, sent)
    assert [each.arrived for each in everything(arrivals)] == [{ORDERS: [sent]}]


def test_more_than_the_kernel_keeps_is_said(layout: Layout, arrivals: Arrivals) -> None:
    arrivals.watch(ORDERS)
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    here, there = (os.path.join(layout.queue(ORDERS), name) for name in ("one", "two"))
    Path(here).write_bytes(b"x")
    for _ in range(kept // 2 + 1):
        os.rename(here, there)
        os.rename(there, here)
    assert any(each.missed for each in _until_empty(arrivals))
    # And from then on it tells again.
    publish(layout, ORDERS, sent := MessageId(UuidSource(FakeClock()).next()))
    assert arrivals.read().arrived == {ORDERS: [sent]}


def _until_empty(arrivals: Arrivals) -> Iterator[News]:
    """As long as the kernel has any: names that are no ids make news that says nothing."""
    while select.select([arrivals], [], [], 0)[0]:
        yield arrivals.read()


def test_much_news_is_read_bit_by_bit(
    layout: Layout, arrivals: Arrivals, ids: Iterator[MessageId]
) -> None:
    arrivals.watch(ORDERS)
    sent = [next(ids) for _ in range(ARRIVALS_READ_BYTES // 64 + 100)]
    for each in sent:
        publish(layout, ORDERS, each)
    told = [each.arrived[ORDERS] for each in everything(arrivals)]
    assert len(told) > 1
    assert [each for part in told for each in part] == sent


def test_there_are_no_more_watches_than_allowed(layout: Layout) -> None:
    arrivals = Arrivals(layout, watches_max=100)
    queues = [QueueName.parse(f"queue-{number}") for number in range(101)]
    for queue in queues:
        os.mkdir(layout.queue(queue))
    assert [arrivals.watch(queue) for queue in queues] == [True] * 100 + [False]
    assert arrivals.watch(queues[0])  # It has one.
    arrivals.unwatch(queues[7])
    assert arrivals.watch(queues[100])
    assert len(arrivals) == 100
    arrivals.close()


def test_no_link_is_followed_and_no_file_watched(layout: Layout, arrivals: Arrivals) -> None:
    os.symlink(layout.queue(BILLS), layout.queue(QueueName.parse("link")))
    Path(layout.queue(QueueName.parse("file"))).write_bytes(b"x")
    for name in ("link", "file", "absent"):
        assert not arrivals.watch(QueueName.parse(name))
    assert len(arrivals) == 0


def test_where_there_is_no_inotify_there_are_no_arrivals(layout: Layout) -> None:
    # No descriptor is left for one.
    code = (
        "import os, resource, sys\n"
        "from mq.store.core.arrivals import open_arrivals\n"
        "from mq.store.format.layout import Layout\n"
        "first = os.dup(0)\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (first, first))\n"
        "sys.exit(open_arrivals(Layout.of(sys.argv[1])) is not None)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, layout.root], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "inotify is not available" in done.stderr
