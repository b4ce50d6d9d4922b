"""Parting a pack: its items are messages of their own, at one moment, whatever happens beside."""

import contextlib
import errno
import functools
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness.faults import FaultyFiles, Met
from harness.leases import QUEUE, LeasingRoot
from harness.packs import on_items

from mq.model.errors import (
    Busy,
    MessageNotFound,
    MessageUnreadable,
    MqError,
    NoSpace,
    QueueNotFound,
)
from mq.model.failure import Failure
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.message import Reason, Stamp
from mq.model.names import MessageId, QueueName
from mq.model.packs import contents
from mq.store.core.failures import read_failures
from mq.store.core.find import place_of, whereabouts
from mq.store.core.moves import claimed_path
from mq.store.disk.flush import FsyncFlusher
from mq.store.disk.steps import Steps
from mq.store.format.layout import Place
from mq.store.format.packs import Try, parts, tries
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish_many
from mq.store.operations.purge import purge
from mq.store.operations.queues import (
    TOMBSTONE_KEPT_S,
    create_queue,
    delete_queue,
    sweep_tombstones,
)
from mq.store.operations.remove import remove
from mq.store.operations.reschedule import reschedule
from mq.store.operations.sideline import sideline
from mq.store.operations.taking_over import is_any_in_flight
from mq.store.packs.items import find_item, units
from mq.store.packs.parting import part
from mq.store.packs.rolling import is_any_parted, retire_parted, roll_all_on, sweep_tries

SIDELINE = QUEUE.sideline()
HEAD = b"ce-id: 7\n"
CALLS_MAX = 300
BODIES = [b"one", b"", b"three\n"]


@pytest.fixture
def files() -> Met:
    return Met()


@pytest.fixture(params=[10_000, 1], ids=["flat", "buckets"])
def place(tmp_path: Path, files: Met, request: pytest.FixtureRequest) -> LeasingRoot:
    place = LeasingRoot(
        tmp_path / "root", folder_max=request.param, files=files, flusher=FsyncFlusher(files, 1)
    )
    place.make_queue(SIDELINE)
    return place


def packed(place: LeasingRoot, *, due_in_s: float = 0, count: int = 2) -> MessageId:
    """The last of two packs, so that it goes to a bucket where there are any."""
    uuids = place.uuids.packs(count)
    ids = [MessageId(each, 3, items=3, header_bytes=len(HEAD), extension="txt") for each in uuids]
    due_ms = place.clock.now_ms() + round(due_in_s * 1000)
    drafts = [Draft(QUEUE, each, due_ms, is_scheduled=due_in_s > 0, head=HEAD) for each in ids]
    held = [contents(BODIES)] * len(ids)
    assert place.run(publish_many(place.root, drafts, held)) == ids
    return ids[-1]


def at(place: LeasingRoot, message_id: MessageId, queue: QueueName = QUEUE) -> Place:
    found = place_of(place.root, queue, message_id)
    assert found is not None, f"{message_id} is nowhere"
    return Place(found[0], queue, message_id, found[1])


def parted(place: LeasingRoot, pack: MessageId, queue: QueueName = QUEUE) -> list[MessageId]:
    ids = place.run(part(place.root, at(place, pack, queue)))
    assert ids == pack.all_items()
    return ids


def content(place: LeasingRoot, message_id: MessageId, queue: QueueName = QUEUE) -> bytes:
    return Path(at(place, message_id, queue).path(place.root.layout)).read_bytes()


def stamp(place: LeasingRoot, message_id: MessageId, queue: QueueName = QUEUE) -> Stamp:
    path = at(place, message_id, queue).path(place.root.layout)
    return Stamp.from_mtime_ns(os.stat(path).st_mtime_ns)


def assert_apart(place: LeasingRoot, pack: MessageId, state: State) -> None:
    """The items are in this state, whole, and nothing of the pack is left."""
    items = pack.all_items()
    assert [content(place, each) for each in items] == [HEAD + body for body in BODIES]
    assert {at(place, each).state for each in items} == {state}
    assert whereabouts(place.root, QUEUE, pack) is None
    assert not os.listdir(parts(place.root.layout))


@pytest.mark.parametrize("state", ["ready", "delayed", "fetched"])
def test_items_have_state_and_stamp_of_their_pack(place: LeasingRoot, state: str) -> None:
    pack = packed(place, due_in_s=60 if state == "delayed" else 0)
    if state == "fetched":
        assert place.run(fetch(place.root, QUEUE, pack, 30)) is not None
    before = stamp(place, pack)
    parted(place, pack)
    assert {stamp(place, each) for each in pack.all_items()} == {before}
    assert_apart(place, pack, State.READY if state == "ready" else State.DELAYED)


def test_items_have_the_failures_of_their_pack(place: LeasingRoot) -> None:
    pack = packed(place)
    assert place.run(fetch(place.root, QUEUE, pack, 30)) is not None
    failure = Failure("no such customer")
    place.run(reschedule(place.root, QUEUE, pack, 0, failure=failure))
    for each in parted(place, pack):
        (kept,) = read_failures(place.root, each)
        assert (kept["id"], kept["text"]) == (each.text, "no such customer")
    left = [each for each in (place.top / "failures").rglob(".*") if each.is_file()]
    assert not left


def test_an_unreadable_pack_goes_to_the_sideline_and_stays_there(place: LeasingRoot) -> None:
    pack = packed(place)
    path = Path(at(place, pack).path(place.root.layout))
    path.write_bytes(path.read_bytes()[:-1])
    for queue in (QUEUE, SIDELINE):
        with pytest.raises(MessageUnreadable):
            place.run(part(place.root, at(place, pack, queue)))
        assert stamp(place, pack, SIDELINE).reason == Reason.UNREADABLE


def test_a_pack_that_another_has_is_not_parted(place: LeasingRoot) -> None:
    pack = packed(place)
    here = at(place, pack)
    path = here.path(place.root.layout)
    other = LeasingRoot(place.top)
    with claimed_path(other.root, path), pytest.raises(Busy):
        place.run(part(place.root, here))
    place.run(remove(other.root, QUEUE, pack))
    assert place.run(part(place.root, here)) is None
    assert not is_any_parted(place.root)


@pytest.mark.parametrize("deed", ["delete", "purge", "drop queue"])
def test_what_takes_the_pack_meanwhile_wins(place: LeasingRoot, files: Met, deed: str) -> None:
    pack = packed(place)
    other = LeasingRoot(place.top, folder_max=1)
    deeds = {
        "delete": lambda: other.run(remove(other.root, QUEUE, pack)),
        "purge": lambda: other.run(purge(other.root, QUEUE, pack.published_ms)),
        "drop queue": lambda: other.run(delete_queue(other.root, QUEUE, other.uuids.next())),
    }
    files.before("rename", f"{pack.text}.", deeds[deed])
    items = place.run(part(place.root, at(place, pack)))
    assert not is_any_parted(place.root)
    if deed != "purge":
        assert items is None
    assert [place_of(place.root, QUEUE, each) for each in (pack, *pack.all_items())] == [None] * 4
    if deed == "drop queue":
        place.run(create_queue(place.root, QUEUE))
        assert not list((place.top / "queues" / "q").iterdir())


@pytest.mark.parametrize("state", [State.READY, State.DELAYED])
@pytest.mark.parametrize("way", ["roll all", "find", "units", "retire"])
def test_what_died_after_the_commit_is_rolled_forward(
    place: LeasingRoot, files: Met, state: State, way: str
) -> None:
    pack = packed(place, due_in_s=0 if state is State.READY else 60)
    moved = 0

    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    # After the first item of three.
    files.before("rename", f"q:{pack.item(2).text}", dies)
    with pytest.raises(KeyboardInterrupt):
        place.run(part(place.root, at(place, pack)))
    assert is_any_parted(place.root)
    with pytest.raises(Busy):
        place.run(remove(place.root, QUEUE, pack.item(3)))
    if way == "roll all":
        assert roll_all_on(place.root) == 1
    elif way == "find":
        found = find_item(place.root, QUEUE, pack.item(3))
        assert found is not None
        assert (found.id, found.state) == (pack.item(3), state)
    elif way == "units":
        ids = [pack.item(3), pack.item(1)]
        assert place.run(units(place.root, QUEUE, ids)) == ids
    else:
        place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
        moved = retire_parted(place.root, frozenset({QUEUE}))
        assert moved == 3
        place.run(create_queue(place.root, QUEUE))
        for each in pack.all_items():
            assert place_of(place.root, QUEUE, each) is None
        assert not is_any_parted(place.root)
        return
    assert_apart(place, pack, state)


@pytest.mark.parametrize("call", ["rename", "unlink"])
def test_two_processes_move_the_items_at_once(place: LeasingRoot, files: Met, call: str) -> None:
    """Another process does the rest meanwhile, and a consumer has an item by then."""
    pack = packed(place)
    other = LeasingRoot(place.top, folder_max=1)
    taken: list[MessageId] = []

    def goes_on() -> None:
        assert roll_all_on(other.root) == 1
        assert other.run(fetch(other.root, QUEUE, pack.item(3), 30)) is not None
        assert other.run(remove(other.root, QUEUE, pack.item(2))) is True
        taken.append(pack.item(3))

    where = {"rename": f"q:{pack.item(2).text}", "unlink": f"q:{pack.text}"}
    files.before(call, where[call], goes_on)
    parted(place, pack)
    assert taken
    assert at(place, pack.item(1)).state is State.READY
    assert at(place, pack.item(3)).state is State.DELAYED
    assert whereabouts(place.root, QUEUE, pack.item(2)) is State.REMOVED
    assert not is_any_parted(place.root)


def committed(place: LeasingRoot, *, count: int = 2) -> MessageId:
    """A pack of which one died that had parted it."""
    pack = packed(place, count=count)
    steps = part(place.root, at(place, pack))
    next(steps)
    steps.send(None)
    steps.close()
    return pack


def test_items_stay_where_their_queue_is_missing_and_was_not_deleted(place: LeasingRoot) -> None:
    pack = committed(place)
    queue, aside = place.top / "queues" / "q", place.top.parent / "aside"
    queue.rename(aside)
    assert roll_all_on(place.root) == 0
    aside.rename(queue)
    assert roll_all_on(place.root) == 1
    assert_apart(place, pack, State.READY)


def test_items_of_a_try_that_did_not_commit_do_not_move(place: LeasingRoot) -> None:
    pack = packed(place)
    steps = part(place.root, at(place, pack))
    next(steps)
    assert roll_all_on(place.root) == 0
    steps.close()
    assert at(place, pack).state is State.READY
    assert whereabouts(place.root, QUEUE, pack.item(1)) is None


def test_items_of_a_deleted_queue_are_removed(place: LeasingRoot) -> None:
    pack = committed(place)
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    assert roll_all_on(place.root) == 1
    assert whereabouts(place.root, QUEUE, pack.item(2)) is State.REMOVED


def test_a_try_of_a_deleted_queue_that_did_not_commit_is_not_taken(place: LeasingRoot) -> None:
    pack = packed(place)
    steps = part(place.root, at(place, pack))
    next(steps)
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    assert retire_parted(place.root, frozenset({QUEUE})) == 0
    steps.close()
    assert whereabouts(place.root, QUEUE, pack.item(1)) is None
    assert not is_any_parted(place.root)


def test_an_item_is_nowhere_unless_it_is_on_its_way(place: LeasingRoot, files: Met) -> None:
    def remove_each(pack: MessageId) -> list[type]:
        found = []
        for item in pack.all_items():
            with pytest.raises(MqError) as caught:
                place.run(remove(place.root, QUEUE, item))
            found.append(caught.type)
        return found

    pack = packed(place)
    assert remove_each(pack) == [MessageNotFound] * 3
    steps = part(place.root, at(place, pack))
    next(steps)
    assert remove_each(pack) == [MessageNotFound] * 3
    steps.send(None)
    assert remove_each(pack) == [Busy] * 3
    steps.close()
    # One of them has gone on meanwhile.
    (tried,) = tries(place.root.layout, place.root.files)
    os.unlink(tried.item_path(place.root.layout, pack.item(2)))
    assert remove_each(pack) == [Busy, MessageNotFound, Busy]


def test_a_purged_pack_is_not_parted_for_a_request(place: LeasingRoot) -> None:
    pack = packed(place)
    here = at(place, pack)
    place.run(purge(place.root, QUEUE, pack.published_ms))
    assert place.run(units(place.root, QUEUE, [pack.item(1)])) == [pack.item(1)]
    assert Path(here.path(place.root.layout)).exists()


@pytest.mark.parametrize("deed", ["bucket", "queue"])
def test_what_goes_before_a_item_comes_is_made_or_met_again(
    tmp_path: Path, files: Met, deed: str
) -> None:
    place = LeasingRoot(tmp_path / "root", 1, files, FsyncFlusher(files, 1))
    pack = packed(place)
    other = LeasingRoot(place.top)
    queue = place.top / "queues" / "q"

    def end_buckets() -> None:
        for folder in sorted(queue.glob("**/"), reverse=True):
            if folder != queue and not any(folder.iterdir()):
                folder.rmdir()

    deeds = {
        "bucket": end_buckets,
        "queue": lambda: other.run(delete_queue(other.root, QUEUE, other.uuids.next())),
    }
    files.before("rename", f"q:{pack.item(1).text}", deeds[deed])
    if deed == "bucket":
        assert_apart(place, parted(place, pack)[0].pack(), State.READY)
        return
    with pytest.raises(Busy):
        parted(place, pack)
    assert roll_all_on(place.root) == 1
    assert whereabouts(place.root, QUEUE, pack.item(2)) is State.REMOVED


def test_a_queue_made_anew_has_nothing_of_a_pack_that_was_parted_between_two_looks(
    place: LeasingRoot, files: Met
) -> None:
    pack = packed(place, due_in_s=60, count=1)
    other = LeasingRoot(place.top)
    steps = part(other.root, at(place, pack))
    next(steps)
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    files.before("entries", "/delay", lambda: steps.send(None))
    place.run(create_queue(place.root, QUEUE))
    with contextlib.suppress(StopIteration):
        steps.send(None)
    roll_all_on(place.root)
    assert not is_any_parted(place.root)
    assert [place_of(place.root, QUEUE, each) for each in pack.all_items()] == [None] * 3


class Interrupted(Met):
    """Others act once, before the call of this number."""

    def __init__(self) -> None:
        super().__init__()
        self.left = -1
        self.acts: Callable[[], object] = lambda: None

    def before_call(self, number: int, acts: Callable[[], object]) -> None:
        self.left, self.acts = number, acts

    def _pass(self, call: str, path: str, also: str = "") -> Any:
        self.left -= 1
        if self.left == -1:
            self.acts()
        return super()._pass(call, path, also)


def scene(top: Path, state: State) -> tuple[Interrupted, LeasingRoot, LeasingRoot, MessageId]:
    """Two processes, the calls of the first, and a pack."""
    files = Interrupted()
    place = LeasingRoot(top, 1, files, FsyncFlusher(files, 1))
    pack = packed(place, due_in_s=60 if state is State.DELAYED else 0, count=1)
    return files, place, LeasingRoot(top), pack


def make_anew(place: LeasingRoot) -> None:
    """Deletes the queue and makes it again, unless another process is at one of its messages."""
    with contextlib.suppress(QueueNotFound):
        place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    with contextlib.suppress(Busy):
        place.run(create_queue(place.root, QUEUE))


def assert_gone(place: LeasingRoot, pack: MessageId, said: object) -> None:
    """Of a pack of the deleted queue nothing comes to the queue, once it is made."""
    place.run(create_queue(place.root, QUEUE))
    roll_all_on(place.root)
    found = [place_of(place.root, QUEUE, each) for each in (pack, *pack.all_items())]
    assert found == [None] * 4, said


@pytest.mark.certificate
@pytest.mark.parametrize("state", [State.READY, State.DELAYED])
def test_a_queue_that_is_made_anew_at_any_call_of_a_parting_has_nothing_of_it(
    tmp_path: Path, state: State
) -> None:
    for number in range(CALLS_MAX):
        files, place, other, pack = scene(tmp_path / str(number), state)
        here = at(place, pack)
        files.before_call(number, functools.partial(make_anew, other))
        with contextlib.suppress(OSError, MqError):
            place.run(part(place.root, here))
        is_over = files.left >= 0
        if is_over:
            make_anew(other)
        assert_gone(other, pack, number)
        if is_over:
            return
    raise AssertionError("work without an end")


@pytest.mark.certificate
@pytest.mark.parametrize("state", [State.READY, State.DELAYED])
@pytest.mark.parametrize("yields", [1, 2], ids=["staged", "parted"])
def test_a_queue_has_nothing_of_what_is_parted_at_any_call_that_makes_it_anew(
    tmp_path: Path, state: State, yields: int
) -> None:
    for number in range(CALLS_MAX):
        files, place, other, pack = scene(tmp_path / str(number), state)
        steps = part(other.root, at(place, pack))
        for _ in range(yields):
            next(steps)
        files.before_call(number, functools.partial(end, steps))
        make_anew(place)
        is_over = files.left >= 0
        end(steps)
        assert_gone(place, pack, number)
        if is_over:
            return
    raise AssertionError("work without an end")


def end(steps: Steps[list[MessageId] | None]) -> None:
    with contextlib.suppress(OSError, MqError):
        for _ in steps:
            pass


def test_a_tombstone_outlives_what_was_parted_behind_a_pass(place: LeasingRoot, files: Met) -> None:
    """The process that parts was stopped for longer than tombstones are kept."""
    pack = packed(place, due_in_s=60, count=1)
    other = LeasingRoot(place.top)
    steps = part(other.root, at(place, pack))
    next(steps)
    place.run(delete_queue(place.root, QUEUE, place.uuids.next()))
    place.clock.advance(TOMBSTONE_KEPT_S + 600)
    files.before("entries", "/delay", lambda: steps.send(None))
    assert place.run(sweep_tombstones(place.root)) == 0
    steps.close()
    assert_gone(place, pack, "the items came back")


def test_items_on_their_way_are_in_flight(place: LeasingRoot) -> None:
    """Another consumer does not become the active one meanwhile."""
    pack = packed(place)
    steps = part(place.root, at(place, pack))
    next(steps)
    assert not is_any_in_flight(place.root, QUEUE)
    steps.send(None)
    assert is_any_in_flight(place.root, QUEUE)
    steps.close()
    roll_all_on(place.root)
    assert not is_any_in_flight(place.root, QUEUE)


def test_a_try_without_its_pack_is_given_up_after_an_hour(place: LeasingRoot, files: Met) -> None:
    pack = packed(place)
    here = at(place, pack)

    def stopped() -> None:
        """The others take it for dead, an hour before its rename."""
        assert sweep_tries(other.root) == 0
        other.clock.advance(FORGOTTEN_AFTER_S + 1)
        assert sweep_tries(other.root) == 0

    other = LeasingRoot(place.top)
    files.before("rename", f".ready/q:{pack.text}", stopped)
    assert place.run(part(place.root, here)) is None
    assert at(place, pack) == here
    (given_up,) = tries(place.root.layout, place.root.files)
    assert given_up.is_given_up
    other.clock.advance(FORGOTTEN_AFTER_S + 1)
    assert sweep_tries(other.root) == 1
    assert parted(place, pack)
    assert_apart(place, pack, State.READY)


def test_a_commit_by_the_old_name_is_found(place: LeasingRoot) -> None:
    """A network mount may lead there for a moment."""
    pack = packed(place)
    here = at(place, pack)
    tried = Try.begun(QUEUE, pack, State.READY)
    parted(place, pack)
    folder = Path(tried.given_up().folder(place.root.layout))
    folder.mkdir()
    for each in pack.all_items():
        os.rename(at(place, each).path(place.root.layout), folder / f"q:{each.text}")
    (folder / f"q:{pack.text}").write_bytes(b"")
    other = LeasingRoot(place.top)
    other.clock.advance(FORGOTTEN_AFTER_S + 1)
    assert sweep_tries(other.root) == 0
    assert roll_all_on(place.root) == 1
    assert at(place, pack.item(1)).state is here.state


@pytest.mark.parametrize("is_linked", ["pack", "item"])
def test_of_two_names_one_is_left(place: LeasingRoot, files: Met, is_linked: str) -> None:
    """A power cut has left both ends of a rename."""
    pack = packed(place)
    path = at(place, pack).path(place.root.layout)

    def dies() -> None:
        raise KeyboardInterrupt

    files.before("rename", f"q:{pack.item(2).text}", dies)
    with pytest.raises(KeyboardInterrupt):
        place.run(part(place.root, at(place, pack)))
    (tried,) = tries(place.root.layout, place.root.files)
    if is_linked == "pack":
        os.rename(
            at(place, pack.item(1)).path(place.root.layout),
            tried.item_path(place.root.layout, pack.item(1)),
        )
        os.link(tried.pack_path(place.root.layout), path)
        assert place.run(fetch(place.root, QUEUE, pack, 30)) is None
        assert roll_all_on(place.root) == 1
        assert_apart(place, pack, State.READY)
    else:
        first = at(place, pack.item(1)).path(place.root.layout)
        os.link(first, tried.item_path(place.root.layout, pack.item(1)))
        assert place.run(fetch(place.root, QUEUE, pack.item(1), 30)) is not None
        assert roll_all_on(place.root) == 1
        assert at(place, pack.item(1)).state is State.DELAYED
        assert at(place, pack.item(2)).state is State.READY


def test_operations_on_items_take_the_pack_or_part_it(place: LeasingRoot) -> None:
    root = place.root

    def removed(ids: list[MessageId], **how: bool) -> list[object]:
        outcomes = on_items(root, QUEUE, ids, lambda each: remove(root, QUEUE, each), **how)
        return [type(each) if isinstance(each, MqError) else each for each in place.run(outcomes)]

    pack = packed(place)
    stranger = pack.item(4)
    assert removed([*pack.all_items(), stranger]) == [True] * 3 + [MessageNotFound]
    assert whereabouts(root, QUEUE, pack) is State.REMOVED
    assert removed([pack.item(2)]) == [False]

    pack = packed(place)
    assert removed([pack.item(2), stranger, pack.item(2)]) == [True, MessageNotFound, True]
    assert at(place, pack.item(1)).state is State.READY
    assert removed([pack.item(2), pack.item(3)]) == [False, True]
    assert removed([packed(place).item(9)]) == [MessageNotFound]

    pack = packed(place)
    later = on_items(
        root,
        QUEUE,
        [pack.item(1)],
        lambda each: reschedule(root, QUEUE, each, 60),
        some_take_all=True,
    )
    assert isinstance(place.run(later)[0], Stamp)
    assert at(place, pack).state is State.DELAYED

    place.run(sideline(root, QUEUE, pack))
    again = on_items(root, QUEUE, [pack.item(1)], lambda each: sideline(root, QUEUE, each))
    assert not isinstance(place.run(again)[0], MqError)
    assert at(place, pack, SIDELINE).state is State.READY
    parted(place, pack, SIDELINE)
    assert content(place, pack.item(3), SIDELINE) == HEAD + BODIES[2]


@pytest.mark.certificate
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.ESTALE], ids=errno.errorcode.get)
@pytest.mark.parametrize("state", [State.READY, State.DELAYED])
def test_every_call_may_fail_once(tmp_path: Path, state: State, code: int) -> None:
    """Each message is there once afterwards, in the pack or as a file."""
    for after in range(CALLS_MAX):
        files = FaultyFiles()
        flusher = FsyncFlusher(files, 1)
        place = LeasingRoot(tmp_path / str(after), folder_max=1, files=files, flusher=flusher)
        pack = packed(place, due_in_s=60 if state is State.DELAYED else 0)
        fault = files.fail("", code, times=1, after=after)
        is_known = False
        with contextlib.suppress(OSError, MqError):
            is_known = place.run(part(place.root, at(place, pack))) is not None
        files.heal()
        said = f"{fault} of {state}"
        assert files.open_paths() == [], said
        assert not is_known or place_of(place.root, QUEUE, pack) is None, said
        roll_all_on(place.root)
        if place_of(place.root, QUEUE, pack) is not None:
            parted(place, pack)
        for _ in range(2):
            place.clock.advance(FORGOTTEN_AFTER_S + 600)  # The disk's own clock goes on, too.
            sweep_tries(place.root)
        assert_apart(place, pack, state)
        flusher.close()
        if not fault.hits:
            assert is_known
            return
    raise AssertionError("work without an end")


def test_a_try_that_cannot_write_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    files = FaultyFiles()
    place = LeasingRoot(tmp_path / "root", files=files)
    pack = packed(place)
    files.fail("write", errno.ENOSPC, times=1, after=1)
    with pytest.raises(NoSpace):
        place.run(part(place.root, at(place, pack)))
    assert at(place, pack).state is State.READY
    assert not is_any_parted(place.root)


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE], ids=errno.errorcode.get)
@pytest.mark.parametrize("state", [State.READY, State.DELAYED])
def test_a_rename_that_was_done_after_all_parts_too(
    tmp_path: Path, state: State, code: int
) -> None:
    """As over NFS: the pack's, and each item's."""
    for after in range(4):
        files = FaultyFiles()
        place = LeasingRoot(tmp_path / str(after), files=files)
        pack = packed(place, due_in_s=60 if state is State.DELAYED else 0)
        fault = files.fail("rename", code, times=1, performed=True, after=after)
        parted(place, pack)
        assert_apart(place, pack, state)
        assert fault.hits == 1


def test_a_mount_that_remembers_an_absent_name_loses_no_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over NFS the rename's answer is lost, and the mount says for a while that it was not done."""
    files = FaultyFiles()
    place = LeasingRoot(tmp_path / "root", files=files)
    place.root = replace(place.root, over_network=True)
    pack = packed(place)
    files.fail("rename", errno.ENOENT, times=1, performed=True)
    with monkeypatch.context() as remembering:
        status = files.status
        hidden = f":{pack}"
        remembering.setattr(
            files,
            "status",
            lambda path: None if ".parts/" in path and path.endswith(hidden) else status(path),
        )
        assert place.run(part(place.root, at(place, pack))) is None
    assert roll_all_on(place.root) == 1
    assert_apart(place, pack, State.READY)
