"""The steps of keys, settings and purges that no single client sees: where another died."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.messages import new_id, set_due

from mq.errors import KeyTaken, MessageNotFound
from mq.limits import FOLDER_FILES_MAX, FORGOTTEN_AFTER_S, IDEMPOTENCY_S_DEFAULT
from mq.names import Key, MessageId, QueueName
from mq.settings import QueueSettings
from mq.store.bucket_names import Shape
from mq.store.configure import change_settings
from mq.store.fetch import fetch
from mq.store.flush import FsyncFlusher
from mq.store.group import run_alone
from mq.store.keyed import Once, give_back, settle
from mq.store.layout import Keys
from mq.store.orphans import OrphanSweep, give_up_publishes
from mq.store.publish import Draft, publish, stage
from mq.store.purge import purge, sweep_purged
from mq.store.queues import create_queue, delete_queue
from mq.store.reap import reap
from mq.store.remove import remove
from mq.store.reschedule import extend, reschedule
from mq.store.root import Root, open_root
from mq.store.steps import Steps, T

QUEUE = QueueName.parse("q")
K = Key.parse("k")
KINDS = ("link", "mkdir", "rename", "rmdir", "sync", "sync_folder", "unlink")


class Place:
    """A root with one queue; in a `crowded` one every message goes below its bucket's first."""

    def __init__(self, top: Path, *, crowded: bool = False) -> None:
        self.top = top
        self.files = FaultyFiles()
        self.clock = FakeClock()
        folder_max = 1 if crowded else FOLDER_FILES_MAX
        self.root: Root = open_root(str(top), self.files, self.clock, folder_max=folder_max)
        self.flusher = FsyncFlusher(self.files, 1)
        self.run(create_queue(self.root, QUEUE))
        self.places = {kind: self.root.layout.link(kind, QUEUE, K) for kind in Keys}
        self._since = 0
        if crowded:
            for folder in ("queues/q", "delay", "remove"):
                (top / folder / ".full").touch()

    def run(self, steps: Steps[T]) -> T:
        """Does it; `taken` says what that took."""
        self.watch()
        return run_alone(steps, self.flusher)

    def watch(self) -> None:
        """`taken` begins here."""
        self._since = len(self.files.calls)

    def taken(self) -> list[str]:
        """What changed the disk, or made that durable, by its first path."""
        top = f"{self.top}/"
        return [
            f"{kind} {path.removeprefix(top)}"
            for kind, path in self.files.calls[self._since :]
            if kind in KINDS
        ]

    def draft(self, *, keyed: bool = True, once: bool = False) -> Draft:
        message_id = MessageId(new_id().uuid, key=K if keyed else None)
        now_ms = self.clock.now_ms()
        return Draft(QUEUE, message_id, now_ms, idempotency=K if once else None)

    def publish(self, *, keyed: bool = True, once: bool = False) -> MessageId:
        return self.run(publish(self.root, self.draft(keyed=keyed, once=once), b"x"))

    def left_in_new(self, *, keyed: bool = True, once: bool = False) -> MessageId:
        """As one leaves it who dies once its links are made."""
        draft = self.draft(keyed=keyed, once=once)
        os.close(stage(self.root, draft))
        set_due(self.top / "new" / f"q:{draft.id.text}", draft.due_ms)
        for kind, is_made in ((Keys.LOOKUP, keyed), (Keys.IDEMPOTENCY, once)):
            if is_made:
                Path(self.places[kind].folder).mkdir(parents=True)
                Path(self.places[kind].path).symlink_to(draft.id.text)
        return draft.id

    def removed_by_another(self, message_id: MessageId) -> Path:
        """Who died before its flush."""
        [path] = (self.top / "queues").rglob(message_id.text)
        removed = self.top / "remove" / f"q:{message_id.text}"
        path.rename(removed)
        return removed

    def folder(self, kind: Keys) -> str:
        return self.places[kind].folder.removeprefix(f"{self.top}/")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    place.flusher.close()


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path, crowded=True)
    yield place
    place.flusher.close()


def in_buckets(folder: str, message_id: MessageId) -> list[str]:
    deep = Shape().deep(message_id)[:-1]
    return [f"sync_folder {folder}/{each}" for each in (deep.partition("/")[0], deep)]


# Keys


def test_a_key_goes_to_another_once_its_message_s_removal_is_flushed(place: Place) -> None:
    place.removed_by_another(place.publish())
    second = place.publish()
    taken, folder = place.taken(), place.folder(Keys.LOOKUP)
    assert taken[2:] == [
        f"link {folder}/k",
        "sync_folder delay",
        "sync_folder queues/q",
        f"unlink {folder}/.new",
        f"link {folder}/.new",
        f"rename {folder}/.new",
        "sync_folder keys",  # What leads there, at its first use.
        "sync_folder keys/q",
        f"sync_folder {folder}",
        f"rename new/q:{second}",
        "sync_folder queues/q",
        "sync_folder new",
    ]


def test_a_key_goes_to_another_once_the_removal_from_a_bucket_is_flushed(crowded: Place) -> None:
    first = crowded.publish()
    bucket = in_buckets("queues/q", first)[0].partition(" ")[2]
    crowded.removed_by_another(first)
    crowded.publish()
    taken, folder = crowded.taken(), crowded.folder(Keys.LOOKUP)
    before = taken[: taken.index(f"rename {folder}/.new")]
    assert f"sync_folder {bucket}" in before


def test_a_key_of_what_was_purged_goes_to_another_once_the_mark_is_flushed(place: Place) -> None:
    purged = place.publish()
    place.run(purge(place.root, QUEUE, purged.published_ms))
    draft = place.draft()
    while draft.id.published_ms == purged.published_ms:
        draft = place.draft()
    place.run(publish(place.root, draft, b"x"))
    taken, folder = place.taken(), place.folder(Keys.LOOKUP)
    at = taken.index(f"link {folder}/k")
    assert taken[at + 1 : taken.index(f"link {folder}/.new")] == [
        "sync_folder purged",
        f"unlink {folder}/.new",
    ]


def test_a_key_that_is_taken_tells_of_all_the_places_of_its_message(crowded: Place) -> None:
    """And of its queue's own entry, which whoever made the queue has perhaps not flushed."""
    message_id = crowded.publish()
    other = FsyncFlusher(crowded.files, 1)
    crowded.watch()
    with pytest.raises(KeyTaken):
        run_alone(publish(crowded.root, crowded.draft(), b"x"), other)
    other.close()
    assert (
        [each for each in crowded.taken() if each.startswith("sync_folder")]
        == [
            "sync_folder new",
            "sync_folder queues",
            "sync_folder queues/q",  # Where it is comes before where it may have come from.
            *in_buckets("queues/q", message_id)[:1],
            "sync_folder delay",
        ]
    )


@pytest.mark.parametrize("keyed", [False, True])
def test_a_link_that_another_made_is_flushed_before_its_message_is_delivered(
    place: Place, keyed: bool
) -> None:
    first = place.left_in_new(keyed=keyed, once=not keyed)
    kind = Keys.LOOKUP if keyed else Keys.IDEMPOTENCY
    if keyed:
        place.run(settle(place.root, QUEUE, place.places[kind], first))
    else:
        assert place.publish(keyed=False, once=True) == first
    taken, folder = place.taken(), place.folder(kind)
    delivered = taken.index(f"rename new/q:{first}")
    assert f"sync_folder {folder}" in taken[:delivered]
    assert "sync_folder new" in taken[delivered:]
    assert "sync_folder queues/q" in taken[delivered : taken.index("sync_folder new", delivered)]


def test_an_idempotency_key_is_given_back_for_good(place: Place) -> None:
    """Before its file in new/ goes."""
    message_id = place.left_in_new(keyed=False, once=True)
    once = Once(Keys.IDEMPOTENCY, K, IDEMPOTENCY_S_DEFAULT)
    assert place.run(give_back(place.root, QUEUE, message_id, once))
    folder = place.folder(Keys.IDEMPOTENCY)
    assert place.taken() == [f"unlink {folder}/k", f"sync_folder {folder}"]


def test_a_forgotten_publish_loses_its_idempotency_key_for_good(place: Place) -> None:
    message_id = place.left_in_new(keyed=False, once=True)
    staged = {(QUEUE, message_id)}
    assert place.run(give_up_publishes(place.root, staged)) == frozenset()
    folder = place.folder(Keys.IDEMPOTENCY)
    assert place.taken() == [f"unlink {folder}/k", f"sync_folder {folder}"]


def test_a_sweep_frees_a_key_once_its_message_s_removal_is_flushed(place: Place) -> None:
    place.removed_by_another(place.publish())
    place.clock.advance(FORGOTTEN_AFTER_S + 60)
    assert place.run(OrphanSweep(place.root).sweep()) == 1
    assert place.taken() == [
        "sync_folder delay",
        "sync_folder queues/q",
        f"unlink {place.folder(Keys.LOOKUP)}/k",
    ]


def test_a_reaper_frees_a_key_once_its_message_s_removal_is_flushed(place: Place) -> None:
    path = place.removed_by_another(place.publish())
    place.watch()
    now_ms = place.clock.now_ms() + 60_000
    reaped = reap(place.files, str(path.parent), now_ms, 0, root=place.root)
    assert reaped.files == 1
    taken = place.taken()
    assert taken[:2] == ["sync_folder delay", "sync_folder queues/q"]
    unlinked = [f"unlink {place.folder(Keys.LOOKUP)}/k", f"unlink remove/{path.name}"]
    assert [each for each in taken if each.startswith("unlink")] == taken[-2:] == unlinked


def test_a_queue_s_keys_are_gone_for_good_before_it_is_made_anew(place: Place) -> None:
    place.publish(once=True)
    place.run(delete_queue(place.root, QUEUE, new_id().uuid))
    gone = ["sync_folder keys", "sync_folder idempotency", "sync_folder firings"]
    taken = place.taken()
    moved = taken[taken.index("rename firings/q", taken.index("sync_folder queues")) :]
    assert moved[1:4] == gone
    place.run(create_queue(place.root, QUEUE))
    taken = place.taken()
    assert taken.index(gone[0]) < taken.index(gone[1]) < taken.index("mkdir queues/q")


def test_what_a_queue_has_left_is_gone_for_good_before_it_is_made_anew(place: Place) -> None:
    """Where another died while it deleted it, or was on its way to make it."""
    place.run(delete_queue(place.root, QUEUE, new_id().uuid))
    (place.top / "settings" / "q.json").write_text('{"visibility_s": 60}')
    (place.top / "purged" / "q").touch()
    place.run(create_queue(place.root, QUEUE))
    taken = place.taken()
    assert taken[taken.index("unlink purged/q") :] == [
        "unlink purged/q",
        "sync_folder purged",
        "unlink settings/q.json",
        "sync_folder settings",
        "mkdir queues/q",
        "sync_folder queues",
    ]


def test_a_deleted_queue_s_mark_goes_after_its_folder(place: Place) -> None:
    place.run(purge(place.root, QUEUE, 1))
    place.run(delete_queue(place.root, QUEUE, new_id().uuid))
    taken = place.taken()
    gone = taken.index("rename queues/q")
    assert taken[gone + 1 :][:2] == ["sync_folder remove", "sync_folder queues"]
    assert taken[taken.index("unlink purged/q") :][:2] == ["unlink purged/q", "sync_folder purged"]
    assert taken.index("unlink purged/q") > gone + 2


# Settings


def test_the_steps_of_other_settings(place: Place) -> None:
    def change(value: float | None) -> list[str]:
        patch = {"visibility_s": value}
        place.run(change_settings(place.root, QUEUE, patch, QueueSettings()))
        return [each.partition(".q.")[0] for each in place.taken()]

    assert change(60) == [
        "unlink settings/",  # Of an earlier try.
        "sync settings/",
        "rename settings/",
        "sync_folder settings",
    ]
    # Whoever wrote it has perhaps not flushed that.
    assert change(60) == ["sync_folder settings"]
    assert change(None) == ["unlink settings/q.json", "sync_folder settings"]


# Purges


def test_the_steps_of_a_purge(place: Place) -> None:
    gone = place.publish(keyed=False)
    before_ms = gone.published_ms
    assert place.run(purge(place.root, QUEUE, before_ms)) == before_ms
    assert [each.partition(".q.")[0] for each in place.taken()] == [
        "unlink purged/",  # Of an earlier try.
        "sync purged/",
        "rename purged/",
        "sync_folder purged",
    ]
    # Whoever made it has perhaps not flushed it.
    assert place.run(purge(place.root, QUEUE, before_ms)) == before_ms
    assert place.taken() == ["sync_folder purged"]
    with pytest.raises(MessageNotFound):
        place.run(remove(place.root, QUEUE, gone))
    assert place.taken() == ["sync_folder purged"]


def test_a_mark_goes_once_nothing_comes_back_that_was_before_it(crowded: Place) -> None:
    message_id = crowded.publish(keyed=False)
    assert crowded.run(fetch(crowded.root, QUEUE, message_id, 30)) is not None
    bucket = Shape().bucket(message_id)[:-1]
    (crowded.top / "remove" / f"q:{new_id().uuid}.queue").mkdir()
    crowded.run(purge(crowded.root, QUEUE, 1))  # Old already.
    crowded.run(sweep_purged(crowded.root, {}))
    taken = [each for each in crowded.taken() if "full" not in each]
    assert taken[:3] == ["sync_folder remove", "sync_folder delay", "sync_folder queues/q"]
    assert taken[-2:] == ["unlink purged/q", "sync_folder purged"]
    beside = [each.removeprefix("sync_folder ") for each in taken[3:-2]]
    assert [each for each in beside if "queue" not in Path(each).suffix] == [
        f"delay/{bucket}",
        f"queues/q/{bucket}",
    ]


# Another due time


def test_another_due_time_is_flushed_in_all_its_places(crowded: Place) -> None:
    """Whoever brought it there may have died before its own flush."""
    message_id = crowded.publish(keyed=False)
    bucket = Shape().bucket(message_id)[:-1]
    assert crowded.run(fetch(crowded.root, QUEUE, message_id, 30)) is not None
    delay = ["sync_folder delay", f"sync_folder delay/{bucket}"]
    queue = ["sync_folder queues/q", f"sync_folder queues/q/{bucket}"]
    crowded.run(reschedule(crowded.root, QUEUE, message_id, 60))
    assert crowded.taken()[1:] == [*delay, *queue]
    crowded.run(reschedule(crowded.root, QUEUE, message_id, 0))
    crowded.run(reschedule(crowded.root, QUEUE, message_id, 0))
    assert crowded.taken() == [*queue, *delay]


def test_what_is_given_to_another_who_waits_longer_is_flushed_with_its_new_time(
    place: Place,
) -> None:
    """The claim has flushed its folders."""
    message_id = place.publish(keyed=False)
    delivery = place.run(fetch(place.root, QUEUE, message_id, 30))
    assert delivery is not None
    due_ms = delivery.stamp.due_ms + 60_000
    extended = place.run(extend(place.root, delivery, due_ms))
    assert extended is not None
    assert extended.stamp.due_ms == due_ms
    assert place.taken() == [f"sync delay/q:{message_id}"]


def test_what_is_not_found_is_flushed_in_all_its_places(crowded: Place) -> None:
    message_id = crowded.publish(keyed=False)
    gone = MessageId(message_id.uuid[:-1] + ("0" if message_id.uuid[-1] != "0" else "1"))
    with pytest.raises(MessageNotFound):
        crowded.run(reschedule(crowded.root, QUEUE, gone, 0))
    assert crowded.taken() == [
        "sync_folder remove",
        "sync_folder delay",
        "sync_folder queues/q",
        *in_buckets("queues/q", message_id)[:1],
    ]
