"""The power goes while mq is at work on a real file system: what it answered holds.

A disk's writes and flushes are logged while clients work (`recording.py`); legal images of what it
may hold after a cut are made from the log (`images.py`), mounted, started on, and compared with
what the clients had been told by then (`promises.py`). MQ_TIMES=10 makes ten times as many.
"""

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import pytest
from crash.blocks import LOOP_CONTROL
from crash.images import Cut, Images, Kept, choose_cuts
from crash.load import QUEUE
from crash.promises import Found, broken
from crash.recording import (
    BTRFS,
    EXT4,
    KINDS,
    XFS,
    Kind,
    Recording,
    Setting,
    make_file_system,
    record,
)
from crash.sqs_load import drained, named
from harness.chance import TIMES
from harness.fuse import check_fuse
from harness.messages import number_in
from harness.mounts import mounted, tmpfs
from harness.needs import program
from harness.processes import Processes
from harness.tally import tally

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.opening import open_root

IMAGES = {EXT4.name: 60, BTRFS.name: 20, XFS.name: 12}
SERVED_EVERY = 20
# Times that a flush is left out before it counts as one that nobody notices.
RECORDINGS_MAX = 5

SETTINGS = {
    "fsync": Setting("fsync"),
    "syncfs": Setting("syncfs"),
    "fsync-in-company": Setting("fsync", in_company=True),
    "syncfs-in-company": Setting("syncfs", in_company=True),
    "fsync-in-buckets": Setting("fsync", folder_max=3),
    "syncfs-in-buckets-in-company": Setting("syncfs", in_company=True, folder_max=3),
}

pytestmark = [
    pytest.mark.certificate,
    pytest.mark.needs_root,
    pytest.mark.usefixtures("needs_root"),
    pytest.mark.timeout(180 * TIMES),
]


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Path]:
    """A folder of memory for images and logs."""
    for name in ("losetup", *(kind.mkfs[0] for kind in KINDS)):
        program(name)
    check_fuse(LOOP_CONTROL)
    with tmpfs(tmp_path / "memory", "size=2g") as memory:
        yield memory


def start_up(recording: Recording, image: Path, cut: Cut) -> list[str]:
    """Starts on the image; what is broken."""
    kind = recording.kind
    with mounted(image, image.with_name("checked"), "loop", *kind.image) as top:
        open_root(str(top), Files(), SystemClock())
        return broken(recording.ledger(cut), Found(top))


async def serve(recording: Recording, image: Path, cut: Cut, daemons: Processes) -> list[str]:
    """Starts mq on the image and fetches; what is broken."""
    ledger = recording.ledger(cut)
    with mounted(image, image.with_name("served"), "loop", *recording.kind.image) as top:
        try:
            mq = await asyncio.to_thread(daemons.mq, top)
            ready = Found(top).ready(QUEUE)
            url = f"{mq.url}/{QUEUE}/messages"
            async with aiohttp.ClientSession() as session, session.get(url) as response:
                status, body = response.status, await response.read()
        finally:
            daemons.end_all()
    if QUEUE not in ledger.queues:
        return []
    if status != (200 if ready else 204):
        return [f"{status} is the answer to a fetch of {ready}"]
    if ready:
        number_in(body)
    return []


async def check(recording: Recording, count: int, work: Path, daemons: Processes) -> list[str]:
    """Cuts the power so many times; what is broken, by cut."""
    images = Images(recording.log, recording.stable)
    image = work / "cut"
    sector_bytes = recording.kind.sector_bytes
    cuts = choose_cuts(recording.log, count, sector_bytes, random.Random(count))
    problems = []
    for number, cut in enumerate(cuts):
        images.write(cut, image)
        found = start_up(recording, image, cut)
        if not found and number % SERVED_EVERY == SERVED_EVERY // 2:
            found = await serve(recording, image, cut, daemons)
        problems += [f"{cut}: {problem}" for problem in found]
    return problems


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_cut_breaks_no_promise(
    work: Path, daemons: Processes, kind: Kind, setting: Setting
) -> None:
    make_file_system(kind, work / "image")
    recording = await record(work, kind, setting, work / "image")
    problems = await check(recording, IMAGES[kind.name] * TIMES, work, daemons)
    tally(f"images of {kind.name}", IMAGES[kind.name] * TIMES)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize("commit", ["fsync", "syncfs"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
async def test_a_second_cut_breaks_no_promise(
    work: Path, daemons: Processes, kind: Kind, commit: str
) -> None:
    """What the first cut left is worked on as it is, and the power goes again."""
    setting = Setting(commit, amount=20)
    make_file_system(kind, work / "image")
    first = await record(work, kind, setting, work / "image")
    cut = Cut(len(first.log) * 2 // 3, Kept.SUBSET, 1, kind.sector_bytes)
    Images(first.log, first.stable).write(cut, work / "image")
    second = await record(work, kind, setting, work / "image", first.marks(cut))
    count = IMAGES[kind.name] * TIMES // 3
    problems = await check(second, count, work, daemons)
    tally(f"images of {kind.name}", count)
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(("kind", "commit"), [(EXT4, "fsync"), (XFS, "syncfs")])
async def test_a_cut_breaks_no_promise_to_clients_of_sqs(
    work: Path, daemons: Processes, kind: Kind, commit: str
) -> None:
    setting = Setting(commit, in_company=True, amount=12, through_sqs=True)
    make_file_system(kind, work / "image")
    recording = await record(work, kind, setting, work / "image")
    images, image = Images(recording.log, recording.stable), work / "cut"
    cuts = choose_cuts(recording.log, 24 * TIMES, kind.sector_bytes, random.Random(24))
    problems = []
    for number, cut in enumerate(cuts):
        images.write(cut, image)
        with mounted(image, work / "checked", "loop", *kind.image) as top:
            open_root(str(top), Files(), SystemClock())
            found = Found(top)
            told = named(recording.ledger(cut), found)
            here = broken(told, found)
            if not here and number % 8 == 6:
                mq = await asyncio.to_thread(daemons.mq, top, "--standalone")
                try:
                    here = await asyncio.to_thread(
                        drained, mq.url, recording.marks(cut), setting.amount
                    )
                finally:
                    daemons.end_all()
        problems += [f"{cut}: {problem}" for problem in here]
    tally(f"images of {kind.name}", len(cuts))
    assert not problems, "\n".join(problems)


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        (EXT4, Setting("fsync", left_out="sync")),
        (EXT4, Setting("fsync", left_out="sync_folder")),
        (EXT4, Setting("syncfs", left_out="sync_file_system")),
        (BTRFS, Setting("syncfs", left_out="sync_file_system")),
        (XFS, Setting("fsync", left_out="sync")),
        (XFS, Setting("fsync", left_out="sync_folder")),
    ],
    ids=lambda value: value.name if isinstance(value, Kind) else f"{value.commit}-{value.left_out}",
)
async def test_a_flush_that_is_left_out_is_noticed(
    work: Path, daemons: Processes, kind: Kind, setting: Setting
) -> None:
    # What the file system has written by itself, and where the cuts fall, is chance.
    for number in range(RECORDINGS_MAX):
        folder = work / str(number)
        folder.mkdir()
        make_file_system(kind, folder / "image")
        recording = await record(folder, kind, setting, folder / "image")
        if await check(recording, 20, folder, daemons):
            return
        shutil.rmtree(folder)
    pytest.fail("nobody notices")
