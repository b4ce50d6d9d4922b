"""What flushes do on file systems of their own."""

import os
import subprocess
from pathlib import Path

import pytest
from crash.blocks import LOOP_CONTROL, logged_disk
from crash.images import Flush as DiskFlush
from crash.images import Mark, Write, read_log
from crash.recording import EXT4, make_file_system
from harness.fuse import check_fuse
from harness.mounts import mounted, tmpfs

from mq.model.clock import SystemClock
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.disk.files import Files
from mq.store.disk.flush import FILES_BEFORE_SYNCFS_MAX, FsyncFlusher, SyncfsFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.mounts import choose_flusher, file_system_of
from mq.store.disk.steps import Flush, Steps
from mq.store.opening import open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.queues import create_queue

BODY = b"a body that no file system has by itself"

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("needs_root")]


def _write(files: Files, path: Path) -> Steps[None]:
    """A file, flushed as if it were enough of them for a syncfs."""
    descriptor = files.create(str(path))
    try:
        files.write(descriptor, BODY)
        yield Flush(files=(descriptor,) * (FILES_BEFORE_SYNCFS_MAX + 1))
    finally:
        files.close(descriptor)


@pytest.mark.parametrize(
    ("made", "kind", "in_order"),
    [
        (["mkfs.ext4", "-q"], "ext4", True),
        (["mkfs.ext4", "-q", "-O", "^has_journal"], "ext4", False),
        (["mkfs.ext4", "-q", "-O", "fast_commit"], "ext4", False),
        (["mkfs.xfs", "-q"], "xfs", True),
        (["mkfs.btrfs", "-q"], "btrfs", False),
    ],
)
def test_which_file_systems_keep_the_order_of_changes(
    tmp_path: Path, made: list[str], kind: str, in_order: bool
) -> None:
    image, point = tmp_path / "image", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(400 << 20)
    point.mkdir()
    subprocess.run([*made, str(image)], check=True)
    with mounted(image, point, "loop"):
        choose_flusher(str(point), Files(), 1).close()
        found = file_system_of(str(point))
        assert (found.kind, found.keeps_order) == (kind, in_order)


def test_of_btrfs_nothing_is_fsynced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its log of what was fsynced would break the order of all else."""
    image, point = tmp_path / "image", tmp_path / "mounted"
    with image.open("wb") as file:
        file.truncate(400 << 20)
    point.mkdir()
    subprocess.run(["mkfs.btrfs", "-q", str(image)], check=True)
    with mounted(image, point, "loop"):
        fsynced: list[int] = []
        files, root = Files(), point / "root"
        root.mkdir()
        monkeypatch.setattr(os, "fsync", fsynced.append)
        opened = open_root(str(root), files, SystemClock())
        flusher = choose_flusher(str(root), files, 1, "fsync")
        run_alone(create_queue(opened, QueueName("q")), flusher)
        draft = Draft(QueueName("q"), MessageId(UuidSource(SystemClock()).next()), 0)
        run_alone(publish(opened, draft, BODY), flusher)
        flusher.close()
        assert fsynced == []
        assert len(list((root / "queues" / "q").iterdir())) == 1


@pytest.mark.parametrize("policy", [SyncfsFlusher, FsyncFlusher])
def test_a_flush_reaches_the_disk(
    tmp_path: Path, policy: type[SyncfsFlusher] | type[FsyncFlusher]
) -> None:
    """On return the disk was flushed after it had the body."""
    check_fuse(LOOP_CONTROL)
    files = Files()
    with tmpfs(tmp_path / "memory", "size=200m") as memory:
        image = memory / "image"
        make_file_system(EXT4, image)
        with (
            logged_disk(memory, image, memory / "log") as disk,
            mounted(disk.device, memory / "mounted") as top,
        ):
            flusher = (
                SyncfsFlusher(files, str(top))
                if policy is SyncfsFlusher
                else FsyncFlusher(files, 1)
            )
            files.sync_folder(str(top))
            disk.mark("begin")
            run_alone(_write(files, top / "file"), flusher)
            disk.mark("end")
            flusher.close()
        with (memory / "log").open("rb") as written:
            log = list(read_log(written))
    begin, end = (place for place, entry in enumerate(log) if isinstance(entry, Mark))
    done = log[begin + 1 : end]
    written_at = next(
        place for place, entry in enumerate(done) if isinstance(entry, Write) and BODY in entry.data
    )
    assert DiskFlush() in done[written_at:]
