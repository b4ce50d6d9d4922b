"""The steps of an archive's batches, and of reaping by them, in their order."""

from pathlib import Path

import pytest
from harness.archives import OTHER, ArchivingRoot
from harness.faults import FaultyFiles

from mq.store.archiving import abandon, disable, stored
from mq.store.flush import FsyncFlusher

KINDS = ("create", "mkdir", "rename", "unlink", "rmdir", "sync", "sync_folder", "sync_file_system")
# What is flushed so that what a batch names was removed for good, where one syncfs does not do.
FOLDERS = ["remove", "leases", "delay", "q", "queues", "new"]


class Watched(ArchivingRoot):
    """One whose calls are known that change the disk, or flush it."""

    def __init__(self, top: Path) -> None:
        self.calls = FaultyFiles()
        super().__init__(top, files=self.calls, flusher=FsyncFlusher(self.calls, 1))
        self._after = 0

    def forget_calls(self) -> None:
        self._after = len(self.calls.calls)

    def steps(self) -> list[str]:
        """The calls since, and the name that each is about; a dotfile's without the process's. That
        a file is not there which somebody might have left is no step.
        """
        called = [(call, Path(path).name) for call, path in self.calls.calls[self._after :]]
        self.forget_calls()
        short = [
            (call, name.rpartition(".")[0] if name.startswith(".") else name)
            for call, name in called
            if call in KINDS
        ]
        return [
            f"{call} {name}"
            for call, name in short
            if not (call == "unlink" and name.startswith("."))
        ]


@pytest.fixture(params=["fsync", "syncfs"])
def sync(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("mq.store.settling.takes_syncfs", lambda _: request.param == "syncfs")
    return str(request.param)


@pytest.fixture
def place(root: Path, sync: str) -> Watched:
    place = Watched(root)
    place.forget_calls()
    return place


def test_the_steps_of_enabling(place: Watched) -> None:
    place.enable()
    assert place.steps() == [
        "mkdir archive", "sync_folder root", "sync_folder archive",
        "create .mark", "sync .mark", "rename .mark", "sync_folder archive",
    ]  # fmt: skip
    place.enable()
    assert place.steps() == ["mkdir archive", "sync_folder root", "sync_folder archive"]


def test_the_steps_of_a_batch(place: Watched, sync: str) -> None:
    place.enable()
    place.remove()
    place.forget_calls()
    batch = place.begun()
    removed_for_good = (
        ["sync_file_system root"] if sync == "syncfs" else [f"sync_folder {f}" for f in FOLDERS]
    )
    assert place.steps() == [
        "create .1.names", *removed_for_good, "sync .1.names", "rename .1.names",
        "sync_folder archive",
    ]  # fmt: skip
    stored(place.root, place.flusher, batch)
    assert place.steps() == ["rename 1.names", "sync_folder archive"]
    stored(place.root, place.flusher, batch)
    assert place.steps() == ["rename 1.names", "sync_folder archive"]


def test_who_finds_a_batch_that_was_begun_flushes_it(place: Watched) -> None:
    """Whoever began it may have died before its own flush."""
    place.enable()
    place.remove()
    place.begun()
    place.forget_calls()
    place.begun()
    assert place.steps() == ["sync_folder archive"]


def test_the_steps_of_abandoning(place: Watched) -> None:
    place.enable()
    place.remove()
    batch = place.begun()
    place.forget_calls()
    abandon(place.root, place.flusher, batch)
    assert place.steps() == ["rename 1.names", "sync_folder archive"]


def test_the_steps_of_disabling(place: Watched) -> None:
    place.enable()
    place.remove()
    place.store()
    place.forget_calls()
    disable(place.root, place.flusher)
    assert place.steps() == [
        "create .ended", "sync .ended", "rename .ended", "sync_folder archive",
        "unlink enabled.json", "sync_folder archive", "unlink 1.stored",
    ]  # fmt: skip


def test_the_steps_of_reaping_by_a_ledger(place: Watched, sync: str) -> None:
    place.enable()
    place.make_queue(OTHER)
    place.publish(1, OTHER)
    place.delete(OTHER)
    removed = place.remove()
    place.store()
    (folder,) = [path.name for path in (place.top / "remove").iterdir() if path.is_dir()]
    place.forget_calls()
    place.reap()
    # The newest stays: it says which number the next batch has.
    unlinked = [f"unlink {name.rpartition('/')[2]}" for name in place.ledgered]
    assert sorted([*unlinked, f"rmdir {folder}"]) == sorted(
        step for step in place.steps() if not step.startswith("sync")
    )
    assert removed[0] not in place.removed()
    place.remove()
    place.store()
    place.forget_calls()
    place.reap()
    gone_for_good = (
        ["sync_file_system root", "sync_folder archive"]
        if sync == "syncfs"
        else [f"sync_folder {name}" for name in (folder, "remove", "archive")]
    )
    steps = place.steps()
    at = steps.index("unlink 1.stored")
    assert steps[at - len(gone_for_good) : at] == gone_for_good


def test_a_ledger_is_flushed_before_anything_is_unlinked_by_it(place: Watched) -> None:
    """Whoever stored it may have died before its own flush."""
    place.enable()
    (name,) = place.remove()
    place.store()
    place.forget_calls()
    place.reap()
    assert place.steps() == ["sync_folder archive", f"unlink {name}"]
