"""Deleted queues on a network mount: in what order their folders say so, and what is flushed."""

import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from harness.faults import FaultyFiles
from harness.leases import QUEUE, LeasingRoot

from mq.model.errors import QueueNotFound, StorageFailed
from mq.model.names import MessageId
from mq.store.audit.repair import right_mode
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher
from mq.store.operations.queues import create_queue, delete_queue, sweep_tombstones
from mq.store.operations.reap import reap

UUID = "01a20c26-881f-7134-a6ea-80676f881f38"


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def place(tmp_path: Path, files: FaultyFiles) -> LeasingRoot:
    made = LeasingRoot(tmp_path / "root", files=files, flusher=FsyncFlusher(files, 1))
    made.root = replace(made.root, over_network=True)
    return made


def folder_of(root: Root) -> str:
    return root.layout.deleted_folder(QUEUE, UUID)


def test_it_says_so_before_the_deletion_is_answered(place: LeasingRoot, files: FaultyFiles) -> None:
    before = len(files.calls)
    place.run(delete_queue(place.root, QUEUE, UUID))
    folder, layout = folder_of(place.root), place.root.layout
    marking = [("set_mode", folder), ("sync_folder", folder)]
    calls = [each for each in files.calls[before:] if each in marking]
    assert calls == marking
    first = files.calls.index(marking[0])
    assert ("rename", layout.queue(QUEUE)) in files.calls[before:first]
    # A process that finds it half done reads there which folder is meant.
    assert Path(layout.tombstone(QUEUE)).read_text() == UUID


def test_it_says_so_also_where_the_deletion_was_cut_off(
    place: LeasingRoot, files: FaultyFiles
) -> None:
    def cut_off() -> None:
        place.run(delete_queue(place.root, QUEUE, UUID))
        os.chmod(folder_of(place.root), 0o700)

    def delete_again() -> None:
        with pytest.raises(QueueNotFound):
            place.run(delete_queue(place.root, QUEUE, "of this one nothing was begun"))

    ways: list[Callable[[], object]] = [
        delete_again,
        lambda: place.run(sweep_tombstones(place.root)),
        lambda: place.run(create_queue(place.root, QUEUE)),
    ]
    for way in ways:
        place.run(create_queue(place.root, QUEUE))
        cut_off()
        before = len(files.calls)
        way()
        assert ("sync_folder", folder_of(place.root)) in files.calls[before:]
        assert os.stat(folder_of(place.root)).st_mode & 0o1777 == 0o1700
        os.rmdir(folder_of(place.root))
    assert place.run(create_queue(place.root, QUEUE)) is False


def test_a_deletion_fails_whose_folder_is_there_and_cannot_be_marked(
    place: LeasingRoot, files: FaultyFiles
) -> None:
    files.fail("set_mode", errno.ESTALE, "/remove/")
    with pytest.raises(StorageFailed):
        place.run(delete_queue(place.root, QUEUE, UUID))


def test_fsck_leaves_a_deleted_queue_s_mode_as_it_is(place: LeasingRoot) -> None:
    """A mount's name may lead to it by mistake."""
    folder = place.root.layout.queue(QUEUE)
    os.chmod(folder, 0o1750)
    place.run(right_mode(place.root, folder))
    assert os.stat(folder).st_mode & 0o7777 == 0o1700
    assert place.run(right_mode(place.root, folder)) is None
    place.run(right_mode(replace(place.root, over_network=False), folder))
    assert os.stat(folder).st_mode & 0o7777 == 0o700


def test_what_came_after_the_deletion_is_on_stable_media_in_its_queue(
    place: LeasingRoot, files: FaultyFiles
) -> None:
    place.run(delete_queue(place.root, QUEUE, UUID))
    place.run(create_queue(place.root, QUEUE))
    late = MessageId.parse("11a20c26-881f-7134-a6ea-80676f881f38")
    path = Path(folder_of(place.root), late.text)
    path.touch()
    came_ns = max(each.stat().st_ctime_ns for each in (path, path.parent))
    place.clock.set_ms(came_ns // 10**6 + 1)
    before = len(files.calls)
    reap(files, place.root.layout.remove, place.clock.now_ms(), 0, root=place.root)
    queue = place.root.layout.queue(QUEUE)
    assert os.listdir(queue) == [late.text]
    moved = files.calls.index(("rename", str(path)), before)
    assert ("sync_folder", queue) in files.calls[moved:]
    assert not path.parent.exists()
