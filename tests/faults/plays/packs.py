"""Packs: what publishes and parts them, and what follows one that died meanwhile."""

from pathlib import Path

from faults.playing import At, plays
from harness.packs import on_items
from harness.staging import QUEUE

from mq.model.failure import Failure
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import MessageId, UuidSource
from mq.model.packs import contents
from mq.store.core.find import place_of
from mq.store.core.root import Root
from mq.store.disk.steps import Steps
from mq.store.format.layout import Place
from mq.store.format.packs import tries
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.purge import purge
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.operations.reschedule import reschedule
from mq.store.packs.parting import part
from mq.store.packs.rolling import roll_all_on, sweep_tries

COMMITTED = 1
"""How often a process flushes before an item moves."""


def published(at: At, root: Root, *, is_later: bool = False) -> MessageId:
    pack = MessageId(UuidSource(at.clock).packs(1)[0], items=2)
    due_ms = at.clock.now_ms() + 60_000 * is_later
    draft = Draft(QUEUE, pack, due_ms, is_scheduled=is_later)
    assert at.run(publish(root, draft, contents([b"a", b"b"]))) is draft.id
    return pack


def parted(root: Root, pack: MessageId) -> Steps[list[MessageId] | None]:
    found = place_of(root, QUEUE, pack)
    assert found is not None
    return part(root, Place(found[0], QUEUE, pack, found[1]))


def in_bucket(at: At) -> tuple[Root, MessageId]:
    """A pack in a bucket of a queue with a sideline, and a process that has used nothing yet."""
    root = at.opened(1)
    for queue in (QUEUE, QUEUE.sideline()):
        at.run(create_queue(root, queue))
    at.crowd("queues/orders")
    pack = published(at, root)
    return at.opened(1), pack


def packed(at: At, folder_max: int = 10_000, *, is_later: bool = False) -> tuple[Root, MessageId]:
    """A pack, and a process that has used nothing yet."""
    root = at.opened(folder_max)
    at.run(create_queue(root, QUEUE))
    pack = published(at, root, is_later=is_later)
    return at.opened(folder_max), pack


def dies(at: At, root: Root, pack: MessageId) -> None:
    """Parts it up to the items' moves."""
    steps, flusher = parted(root, pack), at.flusher()
    flush = next(steps)
    for _ in range(COMMITTED):
        flusher.flush({0: flush})
        flush = steps.send(None)
    flusher.flush({0: flush})
    steps.close()


def committed(at: At, *, is_later: bool = False) -> tuple[Root, MessageId]:
    """As `packed`, of which one died that had parted it."""
    root, pack = packed(at, is_later=is_later)
    dies(at, root, pack)
    return at.opened(), pack


@plays("publish a batch: of a pack")
async def publish_packs(at: At) -> None:
    root = at.opened()
    at.run(create_queue(root, QUEUE))
    at.watch()
    published(at, root)


@plays("part a pack: of two that are ready")
@plays("part a pack: of two for later", is_later=True)
@plays("part a pack: of two, to a bucket", folder_max=1)
async def part_one(at: At, folder_max: int = 10_000, is_later: bool = False) -> None:
    root, pack = packed(at, folder_max, is_later=is_later)
    if folder_max == 1:
        at.crowd("queues/orders")
    at.watch()
    at.run(parted(root, pack))


@plays("part a pack: of two in a bucket, of a queue with a sideline")
async def part_in_bucket(at: At) -> None:
    root, pack = in_bucket(at)
    at.watch()
    at.run(parted(root, pack))


@plays("part a pack: that was released with a reason")
async def part_failed(at: At) -> None:
    root, pack = packed(at)
    assert at.run(fetch(root, QUEUE, pack, 60)) is not None
    at.run(reschedule(root, QUEUE, pack, 0, failure=Failure("why")))
    root = at.opened()
    at.watch()
    at.run(parted(root, pack))


@plays("part a pack: that another takes meanwhile")
async def part_gone(at: At) -> None:
    root, pack = packed(at)
    steps, flusher = parted(root, pack), at.flusher()
    at.watch()
    flusher.flush({0: next(steps)})
    found = place_of(root, QUEUE, pack)
    assert found is not None
    Path(Place(found[0], QUEUE, pack, found[1]).path(root.layout)).unlink()
    try:
        steps.send(None)
    except StopIteration as ended:
        assert ended.value is None  # noqa: PT017


@plays("part a pack: extend one, which extends all")
async def extend_all(at: At) -> None:
    root, pack = packed(at, is_later=True)
    at.watch()
    extended = on_items(
        root,
        QUEUE,
        [pack.item(1)],
        lambda each: reschedule(root, QUEUE, each, 120),
        some_take_all=True,
    )
    at.run(extended)


@plays("part a pack: roll two forward")
@plays("part a pack: roll two forward that are due later", is_later=True)
async def roll_two(at: At, is_later: bool = False) -> None:
    root, _ = committed(at, is_later=is_later)
    at.watch()
    assert roll_all_on(root) == 1


@plays("part a pack: roll two forward to a bucket, of a queue with a sideline")
async def roll_to_bucket(at: At) -> None:
    root, pack = in_bucket(at)
    dies(at, root, pack)
    root = at.opened(1)
    at.watch()
    assert roll_all_on(root) == 1


@plays("part a pack: roll two forward of which another has moved one")
async def roll_one(at: At) -> None:
    root, pack = committed(at)
    (tried,) = tries(root.layout, root.files)
    first = pack.item(1)
    ready = root.layout.path(State.READY, QUEUE, first)
    Path(tried.item_path(root.layout, first)).rename(ready)
    at.watch()
    assert roll_all_on(root) == 1


@plays("part a pack: roll two forward that were purged")
@plays("part a pack: roll two forward that were purged, to a bucket", folder_max=1)
async def roll_purged(at: At, folder_max: int = 10_000) -> None:
    root, _ = committed(at)
    at.run(purge(root, QUEUE, at.clock.now_ms() + 1000))
    if folder_max == 1:
        at.crowd("remove")
        root = at.opened(1)
    at.watch()
    assert roll_all_on(root) == 1


@plays("part a pack: create a queue anew for which one is parted")
async def anew(at: At) -> None:
    root, _ = committed(at)
    at.run(delete_queue(root, QUEUE, UuidSource(at.clock).next()))
    root = at.opened()
    at.watch()
    at.run(create_queue(root, QUEUE))


@plays("part a pack: give up what did not end", hours=1)
@plays("part a pack: take away what was given up", hours=2)
async def give_up(at: At, hours: int) -> None:
    root, _ = committed(at)
    (tried,) = tries(root.layout, root.files)
    Path(tried.pack_path(root.layout)).unlink()
    for _ in range(hours):
        at.clock.advance(FORGOTTEN_AFTER_S + 1)
        at.watch()
        sweep_tries(root)
