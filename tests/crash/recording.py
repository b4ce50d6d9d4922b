"""A load on a real file system, recorded block by block.

Every file system here is made in a file, mounted through a `LoggedDisk`, and is the whole root of
the mq, or of the two mqs with mover and reaper, that the clients of `load.py` use.
"""

import bisect
import contextlib
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp
from crash.blocks import logged_disk
from crash.images import Cut, Entry, Mark, read_log
from crash.load import Clients, Load
from crash.promises import Ledger
from crash.sqs_load import SqsLoad
from harness.mounts import mounted, run_tool
from harness.processes import Process, Processes, processes

from mq.model.limits import FOLDER_FILES_MAX
from mq.store.disk.files import Files

_TESTS = Path(__file__).parent.parent


@dataclass(frozen=True)
class Kind:
    """A file system: how it is made, and how mounted."""

    name: str
    mkfs: tuple[str, ...]
    mib: int
    busy: tuple[str, ...] = ()
    """Mount options that let it commit more often."""
    image: tuple[str, ...] = ()
    """Mount options that a copy of it needs."""
    sector_bytes: int = 512
    """What it trusts a disk to write whole."""


EXT4 = Kind(
    "ext4",
    ("mkfs.ext4", "-q", "-b4096", "-I256", "-Elazy_itable_init=0,lazy_journal_init=0"),
    mib=64,
    busy=("commit=1",),
)
# btrfs does not mount when its superblock, of 4 KiB, is torn.
BTRFS = Kind("btrfs", ("mkfs.btrfs", "-q"), 128, busy=("commit=1",), sector_bytes=4096)
XFS = Kind("xfs", ("mkfs.xfs", "-q"), mib=300, image=("nouuid",))
KINDS = (EXT4, BTRFS, XFS)


@dataclass(frozen=True)
class Setting:
    """How mq runs under the load."""

    commit: str
    in_company: bool = False
    """Two mqs, mq-mover and mq-reaper on one root, and messages that come again soon."""
    left_out: str = ""
    """Flushes that mq leaves out, as `unflushed.py` takes them."""
    amount: int = 40
    through_sqs: bool = False
    """Whether the load is that of `sqs_load.py`."""
    folder_max: int = FOLDER_FILES_MAX


class Recording:
    """What a disk was told, up to the end of the load."""

    def __init__(self, kind: Kind, log: Sequence[Entry], stable: Path, before: list[Mark]) -> None:
        self.kind = kind
        self.log = log
        self.stable = stable
        """The disk as it was before the log."""
        self._before = before
        self._marks = [place for place, entry in enumerate(log) if isinstance(entry, Mark)]

    def marks(self, cut: Cut) -> list[Mark]:
        """What clients had asked and been told when the power went."""
        places = self._marks[: bisect.bisect_left(self._marks, cut.at)]
        return self._before + [entry for p in places if isinstance(entry := self.log[p], Mark)]

    def ledger(self, cut: Cut) -> Ledger:
        """The same, to be compared with a root."""
        following = min(bisect.bisect_left(self._marks, cut.at), len(self._marks) - 1)
        next_mark = self.log[self._marks[following]]
        assert isinstance(next_mark, Mark)
        return Ledger.of(self.marks(cut), next_mark.facts["at_ms"])


def make_file_system(kind: Kind, image: Path) -> None:
    """An empty file system in a file."""
    with image.open("wb") as made:
        made.truncate(kind.mib << 20)
    run_tool(*kind.mkfs, str(image))


@contextlib.contextmanager
def _daemons(root: Path, setting: Setting) -> Iterator[list[Process]]:
    """The mqs that clients use; killed on exit, whoever is with them too."""
    company = ("--standalone", "--visibility", "0.5") if setting.in_company else ()
    with processes() as started:
        common = ("--commit", setting.commit, "--folder-max", str(setting.folder_max))
        flags = (*common, *(company or ("--visibility", "600")))
        mqs = [_start(started, root, setting.left_out, *flags)]
        if setting.in_company:
            mqs.append(started.mq(root, *common, "--visibility", "0.5"))
        yield mqs


def _start(started: Processes, root: Path, left_out: str, *flags: str) -> Process:
    if not left_out:
        return started.mq(root, *flags)
    path = f"{_TESTS}:{os.environ.get('PYTHONPATH', '')}"
    options = (left_out, "--root", str(root), "--port", "0", *flags)
    mq = started.start("crash.unflushed", *options, env={"PYTHONPATH": path})
    mq.port = int(mq.wait_for_log(r"listening .*port=(\d+)").group(1))
    return mq


async def record(
    work: Path, kind: Kind, setting: Setting, image: Path, before: Sequence[Mark] = ()
) -> Recording:
    """Runs the load on the image's file system, kills mq at its end, and gives the log.

    `before`: what clients of an earlier load on this file system have been told.
    """
    stable, log = work / "stable", work / "log"
    shutil.copyfile(image, stable)
    files = Files()
    options = (*kind.image, *(kind.busy if setting.in_company else ()))
    with logged_disk(work, image, log) as disk, contextlib.ExitStack() as cleanup:
        root = cleanup.enter_context(mounted(disk.device, work / "mounted", *options))
        descriptor = files.open_folder(str(root))
        cleanup.callback(files.close, descriptor)
        mqs = cleanup.enter_context(_daemons(root, setting))

        def sync() -> None:
            files.sync_file_system(descriptor)

        async with aiohttp.ClientSession() as session:
            load = Load(
                Clients(disk.mark, session, [mq.port for mq in mqs]),
                setting.amount,
                redelivered=setting.amount // 2 if setting.in_company else 0,
                sync=sync,
                chance=random.Random(kind.name),
            )
            through_sqs = SqsLoad(disk.mark, [mq.url for mq in mqs], setting.amount, sync)
            await (through_sqs if setting.through_sqs else load).run()
        disk.mark("end")
    with log.open("rb") as written:
        entries = list(read_log(written))
    end = max(place for place, entry in enumerate(entries) if isinstance(entry, Mark))
    return Recording(kind, entries[: end + 1], stable, list(before))
