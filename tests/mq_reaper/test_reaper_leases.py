"""Acknowledged leases and mq-reaper: their messages go, then their folders; keys are freed."""

from pathlib import Path

import pytest
from harness.leases import QUEUE, LeasingRoot
from harness.messages import ctime_ms, put_file

from mq.model.errors import KeyTaken
from mq.model.names import Key, MessageId
from mq.store.disk.files import Files
from mq.store.leases.lease import acknowledge
from mq.store.operations.publish import Draft, publish
from mq.store.operations.reap import reap
from mq.store.operations.remove import find_key
from mq_reaper.reaper import Reaper

KEY = Key.parse("night")


@pytest.fixture
def place(root: Path) -> LeasingRoot:
    return LeasingRoot(root)


def acknowledged(place: LeasingRoot) -> Path:
    """The folder in remove/ of a lease of all that is ready."""
    place.run(acknowledge(place.root, place.claimed().name))
    (folder,) = (place.top / "remove").glob("c.*.l")
    return folder


def keyed(place: LeasingRoot) -> MessageId:
    message_id = MessageId(place.uuids.next(), key=KEY)
    draft = Draft(QUEUE, message_id, message_id.published_ms)
    return place.run(publish(place.root, draft, b"x"))


def reaper(place: LeasingRoot, keep_s: float = 0, files: Files | None = None) -> Reaper:
    return Reaper(files or Files(), place.clock, place.root.layout.remove, keep_s)


def test_an_acknowledged_lease_goes_with_its_messages(place: LeasingRoot) -> None:
    place.publish(3)
    folder = acknowledged(place)
    place.pass_s(10)
    assert reaper(place).run_once() == 4
    assert not folder.exists()


def test_it_is_kept_as_a_message_is_and_then_goes_whatever_is_left(place: LeasingRoot) -> None:
    """Each unlink changes the folder's ctime, which must not keep the rest so long again."""
    place.publish(10)
    folder = acknowledged(place)
    goes_ms = min(ctime_ms(folder), place.clock.now_ms()) + 60_000
    reap_at = lambda ms: reap(Files(), str(folder.parent), ms, 60, limit=4)  # noqa: E731
    assert reap_at(goes_ms - 1).files == 0
    assert [reap_at(goes_ms).files for _ in range(3)] == [4, 4, 2]
    assert not folder.exists()


def test_a_foreign_file_keeps_its_folder(place: LeasingRoot) -> None:
    place.publish(2)
    folder = acknowledged(place)
    put_file(folder / "notes.txt", b"mine")
    place.pass_s(10)
    reaping = reaper(place)
    assert reaping.run_once() == 2
    assert reaping.run_once() == 0
    assert [path.name for path in folder.iterdir()] == ["notes.txt"]


def test_keys_are_freed_before_their_messages_go(place: LeasingRoot) -> None:
    class Watching(Files):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[str] = []

        def unlink(self, path: str) -> None:
            self.calls.append("key" if "/.keys/" in path else "message")
            super().unlink(path)

    keyed(place)
    folder = acknowledged(place)
    place.pass_s(10)
    files = Watching()
    reaping = reaper(place, files=files)
    while reaping.run_once():
        pass
    assert not folder.exists()
    calls = files.calls
    assert calls.index("key") < calls.index("message")
    keyed(place)


def test_a_leased_message_has_its_key_until_it_is_acknowledged(place: LeasingRoot) -> None:
    first = keyed(place)
    lease = place.claimed()
    assert place.run(find_key(place.root, QUEUE, KEY)) == first
    with pytest.raises(KeyTaken):
        keyed(place)
    place.run(acknowledge(place.root, lease.name))
    second = keyed(place)
    assert place.run(find_key(place.root, QUEUE, KEY)) == second
