"""Groups: in step, flushed together, and each operation's failure its own."""

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from mq.model.errors import StorageFailed
from mq.store.disk.files import Files
from mq.store.disk.flush import Flusher, FolderFlusher, FsyncFlusher, SyncfsFlusher
from mq.store.disk.group import run_alone, run_group
from mq.store.disk.steps import FilesFailed, Flush, Steps


class RecordingFiles(Files):
    """Real files; remembers what was flushed, and fails what it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.flushed: list[str] = []
        self.failing: dict[str, OSError] = {}

    def sync(self, descriptor: int) -> None:
        self._note(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        super().sync(descriptor)

    def sync_folder(self, path: str) -> None:
        self._note(os.path.basename(path) + "/")
        super().sync_folder(path)

    def sync_file_system(self, descriptor: int) -> None:
        self._note("syncfs")
        super().sync_file_system(descriptor)

    def _note(self, name: str) -> None:
        self.flushed.append(name)
        if name in self.failing:
            raise self.failing[name]


@pytest.fixture
def files() -> RecordingFiles:
    return RecordingFiles()


@pytest.fixture(params=["fsync", "syncfs"])
def flusher(
    request: pytest.FixtureRequest, files: RecordingFiles, tmp_path: Path
) -> Iterator[Flusher]:
    made: Flusher
    if request.param == "fsync":
        made = FsyncFlusher(files, 4)
    else:
        made = SyncfsFlusher(files, str(tmp_path))
    with contextlib.closing(made):
        yield made


def write_then_link(
    files: Files, folder: Path, name: str, log: list[str], *folders: str
) -> Steps[str]:
    """An operation of two flushes: its file, then the folders."""
    descriptor = files.create(str(folder / name))
    try:
        log.append(f"written {name}")
        yield Flush(files=(descriptor,))
    except OSError:
        files.unlink(str(folder / name))
        raise
    finally:
        files.close(descriptor)
    log.append(f"renamed {name}")
    ends = tuple(str(folder / each) for each in folders)
    yield Flush(folders=ends, covered=len(ends) - 1)
    return name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("ready", "new", "other"):
        (tmp_path / name).mkdir()
    return tmp_path


def test_operations_go_in_step(flusher: Flusher, files: RecordingFiles, folder: Path) -> None:
    log: list[str] = []
    group = [write_then_link(files, folder, name, log, "ready", "new") for name in "abc"]
    assert [outcome.value for outcome in run_group(group, flusher)] == ["a", "b", "c"]
    assert log == ["written a", "written b", "written c", "renamed a", "renamed b", "renamed c"]


def test_a_shared_folder_is_flushed_once_and_destinations_first(
    flusher: Flusher, files: RecordingFiles, folder: Path
) -> None:
    group = [
        write_then_link(files, folder, "a", [], "ready", "new"),
        write_then_link(files, folder, "b", [], "other", "new"),
    ]
    run_group(group, flusher)
    assert files.flushed[-3:] == ["ready/", "other/", "new/"]
    before = files.flushed[:-3]
    assert before == ["syncfs"] if flusher.name == "syncfs" else sorted(before) == ["a", "b"]


def test_one_file_s_failure_is_its_own(
    flusher: Flusher, files: RecordingFiles, folder: Path
) -> None:
    files.failing = {
        "b": OSError(errno.EIO, "broken"),
        "syncfs": OSError(errno.EIO, "broken"),  # Then each file is asked for itself.
    }
    group = [write_then_link(files, folder, name, [], "ready", "new") for name in "abc"]
    outcomes = run_group(group, flusher)
    assert [outcome.value for outcome in outcomes] == ["a", None, "c"]
    assert isinstance(outcomes[1].error, StorageFailed)
    assert not (folder / "b").exists()
    assert files.flushed.count("b") == 1, "an fsync that failed is never called again"


def write_many(files: Files, folder: Path, names: str) -> Steps[str]:
    """One flush of a file each; the names of those that failed."""
    opened = {files.create(str(folder / name)): name for name in names}
    try:
        yield Flush(files=tuple(opened))
    except FilesFailed as failed:
        told = sorted(opened[descriptor] for descriptor in failed.errors)
        return "".join([os.strerror(failed.errno or 0), ": ", *told])
    finally:
        for descriptor in opened:
            files.close(descriptor)
    return ""


def test_an_operation_of_many_files_hears_which_of_them_failed(
    flusher: Flusher, files: RecordingFiles, folder: Path
) -> None:
    broken = OSError(errno.EIO, "broken")
    files.failing = dict.fromkeys(("b", "d", "x", "syncfs"), broken)
    group = [write_many(files, folder, names) for names in ("abcd", "xy", "z")]
    assert [outcome.value for outcome in run_group(group, flusher)] == [
        f"{os.strerror(errno.EIO)}: {names}" if names else "" for names in ("bd", "x", "")
    ]


def test_a_folder_s_failure_is_that_of_all_who_need_it(files: RecordingFiles, folder: Path) -> None:
    failed = []
    files.failing = {"ready/": OSError(errno.EIO, "broken")}
    group = [
        write_then_link(files, folder, "a", [], "ready", "new"),
        write_then_link(files, folder, "b", [], "other", "new"),
        write_then_link(files, folder, "c", [], "ready", "new"),
    ]
    with contextlib.closing(
        FsyncFlusher(files, 2, FolderFlusher(files, lambda: failed.append(True)))
    ) as flusher:
        outcomes = run_group(group, flusher)
    assert [type(outcome.error) for outcome in outcomes] == [
        StorageFailed,
        type(None),
        StorageFailed,
    ]
    assert failed


def test_a_folder_that_is_gone_hides_no_other_s_failure(
    files: RecordingFiles, folder: Path
) -> None:
    files.failing = {"first/": OSError(errno.EIO, "broken")}
    (folder / "first").mkdir()

    def operation() -> Steps[None]:
        yield Flush(folders=(str(folder / "first"), str(folder / "gone")))

    with contextlib.closing(FsyncFlusher(files, 1)) as flusher, pytest.raises(StorageFailed):
        run_alone(operation(), flusher)


def test_a_bug_in_one_operation_leaves_the_others_alone(
    flusher: Flusher, files: RecordingFiles, folder: Path
) -> None:
    def broken() -> Steps[None]:
        yield Flush(folders=(str(folder),))
        raise LookupError("a bug")

    outcomes = run_group([broken(), write_then_link(files, folder, "a", [], "new")], flusher)
    assert isinstance(outcomes[0].error, LookupError)
    assert outcomes[1].value == "a"


def test_a_group_without_a_descriptor_of_its_own_flushes_each_file(folder: Path) -> None:
    class Exhausted(RecordingFiles):
        def open_folder(self, path: str) -> int:
            raise OSError(errno.EMFILE, "too many")

    files = Exhausted()
    group = [write_then_link(files, folder, name, [], "new") for name in "ab"]
    outcomes = run_group(group, SyncfsFlusher(files, str(folder)))
    assert [outcome.value for outcome in outcomes] == ["a", "b"]
    assert files.flushed == ["a", "b", "new/"]


def test_alone_gives_the_value_or_raises(files: RecordingFiles, folder: Path) -> None:
    with contextlib.closing(FsyncFlusher(files, 1)) as flusher:
        assert run_alone(write_then_link(files, folder, "a", [], "new"), flusher) == "a"
        with pytest.raises(StorageFailed):
            run_alone(write_then_link(files, folder, "a", [], "new"), flusher)


@pytest.mark.parametrize("code", [errno.ENOENT, errno.ESTALE])
def test_a_folders_failure_is_told_before_another_that_is_gone(
    flusher: Flusher, files: RecordingFiles, tmp_path: Path, code: int
) -> None:
    """Whoever lets a folder be gone must not take that for the other's success."""
    for name in ("remove", "queue"):
        (tmp_path / name).mkdir()
    files.failing["remove/"] = OSError(errno.EIO, os.strerror(errno.EIO))
    files.failing["queue/"] = OSError(code, os.strerror(code))

    def operation() -> Steps[None]:
        with contextlib.suppress(FileNotFoundError):
            yield Flush(folders=(str(tmp_path / "remove"), str(tmp_path / "queue")))

    with pytest.raises(StorageFailed):
        run_alone(operation(), flusher)
