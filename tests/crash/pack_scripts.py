"""Packs, each in a script like those of `scripts.py`: published, parted, and met by those who come
after one that died while it parted one.
"""

import os
from collections.abc import Callable

from crash.registry import BUCKETS, FLAT, script
from crash.stage import LATER_S, ORDERS, SOON_S, VISIBILITY_S, Stage
from harness.messages import make_body
from harness.packs import on_items

from mq.model.failure import Failure
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName, UuidSource
from mq.model.packs import contents
from mq.store.core.find import place_of
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Steps
from mq.store.format.layout import Place
from mq.store.format.packs import tries
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.operations.remove import remove
from mq.store.operations.reschedule import reschedule
from mq.store.operations.sideline import sideline
from mq.store.packs.parting import part
from mq.store.packs.rolling import roll_all_on

QUEUE = QueueName(ORDERS)
SIDELINE = QUEUE.sideline()
# What `part` asks to be flushed, from 0: files, the rename, buckets, items.

Work = Callable[["_Packs"], object]


class _Packs:
    """What one process does with packs, and its marks."""

    def __init__(self, on: Stage, root: Root, flusher: FsyncFlusher) -> None:
        self.root = root
        self.flusher = flusher
        self.mark = on.disk.mark
        self.known = on.known
        self._uuids = UuidSource(root.clock)
        self._number = 0

    def publish(self, items: int = 2, due_in_s: float = 0, *, alone: bool = False) -> MessageId:
        """`alone`: as one with an idempotency key is published."""
        pack = MessageId(self._uuids.packs(1)[0], items=items)
        due_ms = self.root.now_ms() + round(due_in_s * 1000) if due_in_s else 0
        bodies = [make_body(self._number + place, 16) for place in range(items)]
        draft = Draft(QUEUE, pack, due_ms or pack.published_ms, is_scheduled=due_in_s > 0)
        ids = [each.text for each in pack.all_items()]
        self.mark("bulk_asked", ids=ids)
        if alone:
            assert self.run(publish(self.root, draft, contents(bodies))) == pack
        else:
            assert self.run(publish(self.root, draft, contents(bodies))) is draft.id
        for place, each in enumerate(ids):
            number = self._number + place
            self.mark("published", queue=ORDERS, id=each, number=number, due_ms=due_ms)
        self._number += items
        return pack

    def fetch(self, pack: MessageId) -> None:
        self.mark("fetch_asked", queue=ORDERS)
        found = self.run(fetch(self.root, QUEUE, pack, VISIBILITY_S))
        assert found is not None
        for each in pack.all_items():
            facts = {"receives": found.stamp.receives, "due_ms": found.stamp.due_ms}
            self.mark("fetched", queue=ORDERS, id=each.text, **facts)

    def place(self, message_id: MessageId, queue: QueueName = QUEUE) -> Place:
        found = place_of(self.root, queue, message_id)
        assert found is not None
        return Place(found[0], queue, message_id, found[1])

    def part(self, pack: MessageId, queue: QueueName = QUEUE) -> None:
        assert self.run(part(self.root, self.place(pack, queue))) == pack.all_items()

    def dies(self, pack: MessageId, queue: QueueName = QUEUE) -> None:
        """Parts the pack, and dies before it flushes that."""
        steps: Steps[object] = part(self.root, self.place(pack, queue))
        assert not self.flusher.flush({0: next(steps)})
        steps.send(None)
        steps.close()

    def delete(self, ids: list[MessageId], queue: QueueName = QUEUE) -> None:
        for each in ids:
            self.mark("delete_asked", queue=queue.text, id=each.text)
        outcomes = on_items(self.root, queue, ids, lambda each: remove(self.root, queue, each))
        assert self.run(outcomes) == [True] * len(ids)
        for each in ids:
            self.mark("deleted", queue=queue.text, id=each.text)

    def run(self, steps: Steps[object]) -> object:
        return run_alone(steps, self.flusher)


async def _work(on: Stage, work: Work) -> None:
    await on.other(lambda root, flusher: work(_Packs(on, root, flusher)))


async def _packed(on: Stage, items: int = 2, due_in_s: float = 0) -> MessageId:
    """The last of two packs, so that it lies in a bucket where there are any."""
    packs: list[MessageId] = []
    await on.begin(ORDERS)

    def publish(by: _Packs) -> None:
        count = 2 if on.folder_max == BUCKETS else 1
        packs.extend(by.publish(items, due_in_s) for _ in range(count))

    await _work(on, publish)
    on.known()
    return packs[-1]


@script(FLAT, BUCKETS)
async def publish_packs(on: Stage) -> None:
    """The first one changes the root's format; another process finds it so."""
    await on.begin(ORDERS)
    await _work(on, lambda by: [by.publish(), by.publish(due_in_s=SOON_S)])
    await _work(on, lambda by: by.publish())


@script(FLAT)
async def publish_a_pack_alone(on: Stage) -> None:
    await on.begin(ORDERS)
    await _work(on, lambda by: by.publish(alone=True))


@script(FLAT, BUCKETS)
async def fetch_and_delete_a_pack(on: Stage) -> None:
    pack = await _packed(on)
    await _work(on, lambda by: by.fetch(pack))
    await _work(on, lambda by: by.delete(pack.all_items()))


@script(FLAT, BUCKETS)
async def part_a_ready_pack(on: Stage) -> None:
    pack = await _packed(on)

    def work(by: _Packs) -> None:
        by.part(pack)
        by.delete([pack.item(1)])

    await _work(on, work)


@script(FLAT, BUCKETS)
async def part_a_delayed_pack(on: Stage) -> None:
    pack = await _packed(on, due_in_s=SOON_S)
    await _work(on, lambda by: by.delete([pack.item(2)]))


@script(FLAT, BUCKETS)
async def part_a_fetched_pack(on: Stage) -> None:
    """One of its messages is deleted, the other one released."""
    pack = await _packed(on)
    await _work(on, lambda by: by.fetch(pack))
    on.known()

    def work(by: _Packs) -> None:
        by.delete([pack.item(1)])
        facts = {"queue": ORDERS, "id": pack.item(2).text, "due_ms": 0}
        by.mark("reschedule_asked", **facts)
        by.run(reschedule(by.root, QUEUE, pack.item(2), 0))
        by.mark("rescheduled", **facts, to=State.READY.value)

    await _work(on, work)


@script(FLAT, BUCKETS)
async def part_what_another_fetched(on: Stage) -> None:
    """Which died before it flushed that."""
    pack = await _packed(on)
    path = on.ready(pack.text)
    on.disk.mark("fetch_asked", queue=ORDERS)
    os.rename(path, on.root / "delay" / f"{ORDERS}:{pack.text}")
    await _work(on, lambda by: by.delete([pack.item(1)]))


@script(FLAT)
async def part_in_the_sideline(on: Stage) -> None:
    """With what its consumer said of it."""
    pack = await _packed(on)

    def work(by: _Packs) -> None:
        by.run(create_queue(by.root, SIDELINE))
        by.fetch(pack)
        for each in pack.all_items():
            by.mark("sideline_asked", queue=ORDERS, id=each.text)
        by.run(sideline(by.root, QUEUE, pack, failure=Failure("first")))
        for each in pack.all_items():
            by.mark("sidelined", queue=ORDERS, id=each.text)
            by.mark("failed", queue=ORDERS, id=each.text, said="first")
        by.known()
        by.part(pack, SIDELINE)
        by.delete([pack.item(2)], SIDELINE)

    await _work(on, work)


async def _died(on: Stage, due_in_s: float = 0) -> MessageId:
    pack = await _packed(on, due_in_s=due_in_s)
    await _work(on, lambda by: by.dies(pack))
    return pack


@script(FLAT, BUCKETS)
async def delete_what_another_parted(on: Stage) -> None:
    """Which died before it flushed that."""
    pack = await _died(on)
    await _work(on, lambda by: by.delete([pack.item(2)]))


@script(FLAT, BUCKETS)
async def delete_what_another_parted_for_later(on: Stage) -> None:
    pack = await _died(on, SOON_S)
    await _work(on, lambda by: by.delete([pack.item(2)]))


@script(FLAT, BUCKETS)
async def fetch_what_another_moved(on: Stage) -> None:
    """Where there are two packs, the first one is parted by the fetch."""
    pack = await _died(on)
    await _work(on, lambda by: roll_all_on(by.root))
    is_first = MessageId.parse(await on.fetched()).pack() == pack
    assert is_first == (on.folder_max == FLAT)


@script(FLAT, BUCKETS)
async def roll_forward_what_another_moved(on: Stage) -> None:
    """Some of it, before it died; who goes on dies too."""
    pack = await _packed(on, items=3)

    def work(by: _Packs) -> None:
        by.dies(pack)
        (tried,) = tries(by.root.layout, by.root.files)
        first = pack.item(1)
        os.rename(
            tried.item_path(by.root.layout, first), by.root.layout.path(State.READY, QUEUE, first)
        )

    await _work(on, work)
    await _work(on, lambda by: roll_all_on(by.root))
    await _work(on, lambda by: by.delete([pack.item(1), pack.item(3)]))


@script(FLAT, BUCKETS)
async def purge_what_is_being_parted(on: Stage) -> None:
    pack = await _died(on)

    def work(by: _Packs) -> None:
        by.mark("purge_asked", queue=ORDERS)
        by.run(purge(by.root, QUEUE, by.root.now_ms()))
        by.mark("purged", queue=ORDERS)
        assert roll_all_on(by.root) == 1
        assert place_of(by.root, QUEUE, pack.item(1)) is None

    await _work(on, work)


@script(FLAT, BUCKETS)
async def drop_the_queue_of_what_is_being_parted(on: Stage) -> None:
    """And make it again."""
    await _died(on, SOON_S)

    def work(by: _Packs) -> None:
        by.mark("drop_asked", queue=ORDERS)
        by.run(delete_queue(by.root, QUEUE, UuidSource(by.root.clock).next()))
        by.mark("dropped", queue=ORDERS)
        by.mark("make_asked", queue=ORDERS)
        by.run(create_queue(by.root, QUEUE))
        by.mark("made_anew", queue=ORDERS)

    await _work(on, work)


@script(FLAT)
async def give_up_a_parting(on: Stage) -> None:
    """Of one that died before its commit; then the pack is parted once more."""
    pack = await _packed(on)
    folder = on.root / "new" / ".parts" / f"{ORDERS}:{pack.text}.1123456789abcdef.ready"
    folder.mkdir(parents=True)
    (folder / f"{ORDERS}:{pack.item(1).text}").write_bytes(b"to")
    for _ in range(2):
        on.disk.pass_time(LATER_S * 12)
        await on.sweep()
    assert not folder.parent.exists() or not list(folder.parent.iterdir())
    await _work(on, lambda by: by.delete([pack.item(2)]))
