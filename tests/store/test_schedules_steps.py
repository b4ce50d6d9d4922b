"""The steps of schedules, one after the other: what is on stable media before what."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.faults import FaultyFiles
from harness.messages import new_id
from harness.schedules import EVERY_S, MINUTELY, NAME, QUEUE, TimedRoot

from mq.errors import QueueNotFound, ScheduleNotFound
from mq.limits import FIRING_KEPT_S, FORGOTTEN_AFTER_S
from mq.names import Key, QueueName, ScheduleName
from mq.store.flush import FsyncFlusher
from mq.store.layout import Keys
from mq.store.orphans import OrphanSweep, give_up_publishes
from mq.store.queues import create_queue, delete_queue, sweep_tombstones
from mq.store.schedule_layout import firing_place
from mq.store.schedules import delete_schedule, put_schedule
from mq.store.steps import Steps, T

_BESIDE = re.compile(r"^schedules/\..*")
KINDS = ("create", "link", "mkdir", "rename", "stamp", "sync", "sync_folder", "unlink", "write")


class Place(TimedRoot):
    """One that writes down what is done."""

    def __init__(self, top: Path) -> None:
        self.calls = FaultyFiles()
        super().__init__(top, self.calls, FsyncFlusher(self.calls, 1))
        self._since = 0

    def run(self, operation: Steps[T]) -> T:
        self._since = len(self.calls.calls)
        return super().run(operation)

    def taken(self) -> list[str]:
        """What the last operation changed, or made durable; names in schedules/ that are written
        beside without what is of the process.
        """
        top = f"{self.top}/"
        made = [(kind, path) for kind, path in self.calls.calls[self._since :] if kind in KINDS]
        return [
            f"{kind} {_BESIDE.sub('schedules/', path.removeprefix(top))}" for kind, path in made
        ]


@pytest.fixture
def place(root: Path) -> Iterator[Place]:
    made = Place(root)
    yield made
    made.flusher.close()


BESIDE = ["create schedules/", "write schedules/", "stamp schedules/", "sync schedules/"]
"""What is next of a schedule, whole and on stable media before it has its name."""
OVER = ["rename schedules/", "sync_folder schedules"]


def test_a_schedule_is_whole_before_it_has_its_name(place: Place) -> None:
    place.put()
    # The queue's folder too, at its first use.
    assert place.taken() == [*BESIDE, "sync_folder queues", *OVER]
    place.put(body=b"other")
    assert place.taken() == [*BESIDE, *OVER]


def test_its_queue_is_flushed_before_it(place: Place) -> None:
    """Whoever made that may have died before its own flush."""
    other = QueueName.parse("other")
    (place.top / "queues" / "other").mkdir()
    place.run(put_schedule(place.root, other, NAME, MINUTELY))
    taken = place.taken()
    assert taken.index("sync_folder queues") < taken.index("rename schedules/")


def test_the_same_again_is_flushed(place: Place) -> None:
    place.put()
    place.put()
    assert place.taken() == ["sync_folder schedules"]


def test_a_schedule_is_gone_for_good(place: Place) -> None:
    place.put()
    place.run(delete_schedule(place.root, QUEUE, NAME))
    assert place.taken() == ["unlink schedules/q:nightly", "sync_folder schedules"]
    with pytest.raises(ScheduleNotFound):
        place.run(delete_schedule(place.root, QUEUE, NAME))
    assert place.taken() == ["sync_folder schedules"]


@pytest.mark.parametrize("what", ["put", "delete"])
def test_that_its_queue_is_gone_is_for_good(place: Place, what: str) -> None:
    nobody = QueueName.parse("nobody")
    steps: Steps[object] = (
        put_schedule(place.root, nobody, NAME, MINUTELY)
        if what == "put"
        else delete_schedule(place.root, nobody, NAME)
    )
    with pytest.raises(QueueNotFound):
        place.run(steps)
    assert place.taken() == ["sync_folder remove", "sync_folder queues"]


def test_a_queue_that_goes_while_its_schedule_is_written_is_gone_for_good(place: Place) -> None:
    steps = put_schedule(place.root, QUEUE, NAME, MINUTELY)
    asked = next(steps)
    assert asked.files
    (place.top / "queues" / "q").rename(place.top / "remove" / f"q:{new_id().uuid}.d")
    with pytest.raises(QueueNotFound):
        place.run(steps)
    assert place.taken()[-2:] == ["sync_folder remove", "sync_folder queues"]
    assert place.names() == [".lock"]


def firing(place: Place) -> str:
    """The folder of the link of what is due next."""
    due_ms = place.read().next_ms
    assert due_ms is not None
    link = firing_place(place.root.layout, QUEUE, NAME, due_ms)
    return link.folder.removeprefix(f"{place.top}/")


def test_a_firing_s_link_is_made_once_its_message_is_whole_and_flushed_before_it_shows(
    place: Place,
) -> None:
    place.put(key=Key.parse("night"))
    folder = firing(place)
    place.pass_s()
    message = place.fire().message
    assert message is not None
    key = place.root.layout.link(Keys.LOOKUP, QUEUE, Key.parse("night"))
    key_folder, new = key.folder.removeprefix(f"{place.top}/"), f"new/q:{message.text}"
    assert place.taken() == [
        f"create {new}",
        f"write {new}",
        f"stamp {new}",
        f"sync {new}",
        "sync_folder new",
        f"link {folder}/{NAME.text}-{place.read().next_ms}",
        "mkdir firings/q",
        f"mkdir {folder}",
        f"link {folder}/{NAME.text}-{place.read().next_ms}",
        "sync_folder firings",
        "sync_folder firings/q",
        f"sync_folder {folder}",
        f"link {key_folder}/night",
        "mkdir keys/q",
        f"mkdir {key_folder}",
        f"link {key_folder}/night",
        "sync_folder keys",
        "sync_folder keys/q",
        f"sync_folder {key_folder}",
        f"rename {new}",
        "sync_folder queues/q",
        "sync_folder new",
    ]


def test_what_is_next_is_written_as_a_schedule_is(place: Place) -> None:
    for name in ("a", "b"):
        place.put(name=name)
    place.pass_s()
    fired = [place.fire("a"), place.fire("b")]
    place.rearm(*fired)
    assert place.taken() == [
        *BESIDE[:3], *BESIDE[:3], BESIDE[3], BESIDE[3], OVER[0], OVER[0], OVER[1],
    ]  # fmt: skip


def test_what_another_fired_is_flushed_before_what_is_next(place: Place) -> None:
    """It died before its own flush."""
    place.put()
    folder = firing(place)
    place.pass_s()
    message = place.fire().message
    assert place.fire().message == message
    assert place.taken() == ["sync_folder queues/q", "sync_folder delay"]
    # It has died earlier.
    assert message is not None
    (place.top / "queues/q" / message.text).rename(place.top / "new" / f"q:{message.text}")
    assert place.fire().message == message
    taken = place.taken()
    assert taken.index(f"sync_folder {folder}") < taken.index(f"rename new/q:{message.text}")
    assert taken[taken.index(f"rename new/q:{message.text}") :][1:3] == [
        "sync_folder queues/q",
        "sync_folder new",
    ]


def test_a_firing_that_is_given_up_loses_its_link_for_good_before_its_file(place: Place) -> None:
    place.put(key=Key.parse("night"))
    place.put(name="other", key=Key.parse("night"))
    folder = firing(place)
    place.pass_s()
    place.fire("other")
    assert place.fire().message is None
    taken = place.taken()
    [unlinked] = [each for each in taken if each.startswith(f"unlink {folder}")]
    [discarded] = [each for each in taken if each.startswith("unlink new/")]
    assert taken.index(unlinked) < taken.index(f"sync_folder {folder}", taken.index(unlinked))
    assert taken.index(f"sync_folder {folder}", taken.index(unlinked)) < taken.index(discarded)


def test_a_firing_s_link_goes_once_its_schedule_went_on_for_good(place: Place) -> None:
    place.put()
    folder = firing(place)
    place.pass_s()
    place.rearm(place.fire())
    place.pass_s(FIRING_KEPT_S + EVERY_S)
    assert place.run(OrphanSweep(place.root).sweep()) == 1
    taken = place.taken()
    [unlinked] = [each for each in taken if each.startswith(f"unlink {folder}")]
    assert taken.index("sync_folder schedules") < taken.index(unlinked)


def test_a_firing_that_was_forgotten_loses_its_link_for_good(place: Place) -> None:
    """Before its file in new/ goes."""
    place.put()
    folder = firing(place)
    place.pass_s()
    message = place.fire().message
    assert message is not None
    (place.top / "queues/q" / message.text).rename(place.top / "new" / f"q:{message.text}")
    place.pass_s(FORGOTTEN_AFTER_S + 1)
    assert place.run(give_up_publishes(place.root, {(QUEUE, message)})) == frozenset()
    taken = place.taken()
    assert taken[-1] == f"sync_folder {folder}"
    assert taken[-2].startswith(f"unlink {folder}")


def test_a_deleted_queue_s_schedules_are_gone_for_good(place: Place) -> None:
    place.put()
    place.run(delete_queue(place.root, QUEUE, new_id().uuid))
    taken = place.taken()
    went = taken.index("unlink schedules/q:nightly")
    assert taken.index("rename queues/q") < taken.index("sync_folder queues") < went
    assert taken[went + 1] == "sync_folder schedules"


def test_those_that_another_took_away_are_gone_for_good_before_the_queue_is_made(
    place: Place,
) -> None:
    """And before its tombstone goes, which says that they may."""
    place.run(delete_queue(place.root, QUEUE, new_id().uuid))
    place.run(create_queue(place.root, QUEUE))
    taken = place.taken()
    assert taken.index("sync_folder schedules") < taken.index("unlink deleted/q")
    assert taken.index("unlink deleted/q") < taken.index("mkdir queues/q")


def test_those_that_a_crash_has_left_are_gone_for_good_before_the_tombstone(place: Place) -> None:
    place.put()
    content = place.path().read_bytes()
    place.run(delete_queue(place.root, QUEUE, new_id().uuid))
    place.path().write_bytes(content)
    place.pass_s(FORGOTTEN_AFTER_S + 1)
    place.run(sweep_tombstones(place.root))
    taken = place.taken()
    went = taken.index("unlink schedules/q:nightly")
    assert taken[went + 1] == "sync_folder schedules"
    assert went < taken.index("unlink deleted/q")


def test_several_are_rearmed_though_one_could_not_be_flushed(place: Place) -> None:
    names = [ScheduleName(name) for name in ("a", "b", "c")]
    for name in names:
        place.put(name=name.text)
    place.pass_s()
    fired = [place.fire(name.text) for name in names]
    place.calls.fail("sync", 5, "/.q:b", times=1)
    armed = place.rearm(*fired)
    assert [each is None for each in armed] == [False, True, False]
    assert [place.read(name.text).fired for name in names] == [1, 0, 1]
    assert place.names() == [".lock", "q:a", "q:b", "q:c"]
    assert place.calls.open_paths() == []
    # The link stands: it is not published again.
    again = place.fire("b")
    assert (again.message, again.is_ours) == (fired[1].message, False)
