"""mq-reaper while an archive is enabled: what it has stored goes, in every way, and it alone; and
what is said when it is behind.
"""

import errno
import shutil
from pathlib import Path

import pytest
from harness.archives import OTHER, ArchivingRoot
from harness.faults import FaultyFiles
from harness.leases import QUEUE
from harness.logged import event
from harness.messages import ctime_ms, put_file
from harness.processes import Processes, eventually
from harness.scraped import Scraped, scrape_url
from hypothesis import given
from hypothesis import strategies as st

from mq.model.names import Key, MessageId
from mq.store.operations.publish import Draft, publish
from mq.store.operations.remove import find_key
from mq_reaper.lag import ARCHIVE_LATE_SAID_EVERY_S, Free, Said, Warnings
from mq_reaper.reaper import Reaper

HOUR_S = 3600.0
KEY = Key.parse("night")


@pytest.fixture
def place(root: Path) -> ArchivingRoot:
    return ArchivingRoot(root, folder_max=3)


def fill(place: ArchivingRoot) -> None:
    """Messages in remove/ that came there in every way."""
    place.make_queue(OTHER)
    place.publish(8, OTHER)
    place.delete(OTHER)
    place.publish(3)
    place.acknowledge()
    place.remove(9)


def test_nothing_goes_before_it_is_stored_and_all_of_it_then(place: ArchivingRoot) -> None:
    fill(place)
    place.enable()
    removed = place.removed()
    reaper = place.reaper()
    assert place.reap(reaper) == 0
    first = place.store(7)
    place.pass_s(1)
    place.reap(reaper)
    assert place.removed() == [name for name in removed if name not in first]
    while place.begin(7) is not None:
        place.store(7)
    place.pass_s(1)
    place.reap(reaper)
    # Buckets stay while somebody may write to them.
    left = [path.name for path in (place.top / "remove").iterdir()]
    assert all(len(name) == 8 for name in left), left
    place.pass_s(HOUR_S)
    place.reap(reaper)
    assert list((place.top / "remove").iterdir()) == []


def test_what_is_stored_is_kept_as_long_as_without(place: ArchivingRoot) -> None:
    (first,) = place.remove()
    place.publish(2)
    place.acknowledge()
    place.enable()
    place.store()
    reaper = place.reaper(keep_s=60)
    goes_ms = ctime_ms(place.top / "remove" / first) + 60_000
    place.clock.set_ms(goes_ms - 1)
    reaper.run_once()
    assert first in place.removed()
    assert reaper.next_due_s() is not None
    place.pass_s(60)
    place.reap(reaper)
    assert place.removed() == []
    assert place.ledgers() == ["1.stored"]


def test_a_pass_is_cut_and_the_next_goes_on(
    place: ArchivingRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq_reaper.reaper.REAPED_PER_PASS_MAX", 4)
    place.remove(10)
    place.enable()
    place.store()
    place.pass_s(10)
    reaper = place.reaper()
    assert [reaper.run_once() for _ in range(4)] == [4, 4, 2, 0]


def test_a_key_is_free_once_its_message_is_unlinked(place: ArchivingRoot) -> None:
    message_id = MessageId(place.uuids.next(), key=KEY)
    draft = Draft(QUEUE, message_id, message_id.published_ms)
    place.run(publish(place.root, draft, b"x"))
    assert place.run(find_key(place.root, QUEUE, KEY)) == message_id
    place.acknowledge()
    (link,) = (path for path in (place.top / "queues").glob("*/.keys/*/*") if path.is_symlink())
    place.enable()
    assert place.reap() == 0
    assert link.is_symlink()
    place.store()
    assert place.reap() == 2
    assert not link.is_symlink()


def test_keys_of_deleted_queues_need_no_archive(place: ArchivingRoot) -> None:
    place.enable()
    deleted = place.top / "remove" / f"q:{place.uuids.next()}.d"
    (deleted / ".keys" / "0f").mkdir(parents=True)
    (deleted / ".keys" / "0f" / "night").symlink_to(place.uuids.next())
    assert place.reap() == 2
    assert not deleted.exists()


def test_keys_of_a_deleted_queue_go_after_its_messages(place: ArchivingRoot) -> None:
    """Nothing else comes to remove/ meanwhile."""
    message_id = MessageId(place.uuids.next(), key=KEY)
    place.run(publish(place.root, Draft(QUEUE, message_id, message_id.published_ms), b"x"))
    place.delete(QUEUE)
    place.enable()
    place.store()
    place.reap()
    assert not list((place.top / "remove").glob("*.d"))


def test_what_comes_to_a_folder_later_is_the_next_batch_s(place: ArchivingRoot) -> None:
    fill(place)
    place.enable()
    place.store()
    (folder,) = (place.top / "remove").glob("*.d")
    late = put_file(folder / place.uuids.next())
    foreign = put_file(place.top / "remove" / "notes.txt")
    place.reap()
    assert late.exists()
    place.store()
    place.reap()
    assert not folder.exists()
    assert foreign.exists()


def test_two_reapers_share_a_ledger(place: ArchivingRoot) -> None:
    fill(place)
    place.enable()
    place.store()
    place.remove()
    place.store()
    place.pass_s(10)
    reapers = [place.reaper(), place.reaper()]
    assert reapers[0].run_once()
    assert not reapers[1].run_once()
    assert place.ledgers() == ["2.stored"]


def test_one_that_cannot_be_unlinked_keeps_its_ledger_and_no_other(root: Path) -> None:
    files = FaultyFiles()
    place = ArchivingRoot(root, files=files)
    place.enable()
    stuck, *_ = place.remove(3)
    place.store()
    place.remove(2)
    place.store()
    files.fail("unlink", errno.EIO, stuck)
    place.pass_s(10)
    reaper = place.reaper()
    with pytest.raises(OSError, match="error"):
        reaper.run_once()
    assert place.removed() == [stuck]
    files.heal()
    place.pass_s(10)
    place.reap(reaper)
    assert place.removed() == []
    assert place.ledgers() == ["2.stored"]


def test_an_archive_that_is_disabled_keeps_nothing(place: ArchivingRoot) -> None:
    fill(place)
    place.enable()
    reaper = place.reaper()
    assert place.reap(reaper) == 0
    shutil.rmtree(place.top / "archive")
    place.pass_s(HOUR_S)
    place.reap(reaper)
    assert place.removed() == []


def test_another_folder_keeps_all_while_the_root_beside_is_archived(place: ArchivingRoot) -> None:
    (name,) = place.remove()
    aside = place.top / "aside"
    aside.mkdir()
    (place.top / "remove" / name).rename(aside / name.rpartition("/")[2])
    place.enable()
    place.pass_s(10)
    reaper = Reaper(place.files, place.clock, str(aside), 0)
    assert reaper.run_once() == 0
    shutil.rmtree(place.top / "archive")
    place.pass_s(10)
    assert reaper.run_once() == 1


# What is said


def test_it_is_said_that_the_archive_is_behind_and_once_that_it_is_not(
    place: ArchivingRoot, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mq-reaper")
    place.remove(3)
    place.enable()
    reaper = place.reaper(late_s=60)

    def said(after_s: float) -> list[str]:
        caplog.clear()
        place.pass_s(after_s)
        reaper.run_once()
        return [event(record) for record in caplog.records]

    assert said(50) == []
    # Whichever this machine's disk is.
    assert said(30) in ([Said.BEHIND.value], [Said.BEHIND_AND_LOW.value])
    fields = caplog.records[0].fields  # type: ignore[attr-defined]
    assert fields["messages"] == 3
    assert 75 <= fields["oldest_s"] <= 85
    assert said(60) == []
    assert len(said(ARCHIVE_LATE_SAID_EVERY_S)) == 1
    place.store()
    assert said(61) == [Said.CAUGHT_UP.value]
    assert said(61) == []


def test_a_disk_that_runs_low_is_said_with_its_figures(
    place: ArchivingRoot, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(FaultyFiles):
        def free(self, path: str) -> object:  # type: ignore[override]
            told = super().free(path)
            return type(told)([*told[:4], told.f_blocks // 50, *told[5:]])

    place.remove()
    place.enable()
    place.files = Full()
    place.pass_s(HOUR_S + 60)
    place.reaper().run_once()
    (record,) = caplog.records
    assert event(record) == Said.BEHIND_AND_LOW.value
    assert record.fields["free_percent"] == pytest.approx(2, abs=0.1)  # type: ignore[attr-defined]
    assert len(place.removed()) == 1


steps = st.lists(st.tuples(st.none() | st.floats(0, 200), st.booleans(), st.floats(0, 700)))


@given(steps)
def test_warnings_are_few_and_end_with_one_word(
    steps: list[tuple[float | None, bool, float]],
) -> None:
    warnings, now_s = Warnings(100), 0.0
    last_s = float("-inf")
    is_behind = was_low = False
    for oldest_s, is_low, passed_s in steps:
        now_s += passed_s
        said = warnings.say(oldest_s, is_low, now_s)
        if oldest_s is None or oldest_s <= 100:
            assert said is (Said.CAUGHT_UP if is_behind else None)
            is_behind = was_low = False
            continue
        is_new = not is_behind or (is_low and not was_low)
        assert (said is not None) == (is_new or now_s - last_s >= ARCHIVE_LATE_SAID_EVERY_S)
        if said is not None:
            assert said is (Said.BEHIND_AND_LOW if is_low else Said.BEHIND)
            last_s, was_low = now_s, is_low
        is_behind = True


@pytest.mark.parametrize(
    ("share", "inodes", "is_low"),
    [
        (0.5, 0.5, False),
        (0.09, 0.5, True),
        (0.5, 0.09, True),
        (0.5, None, False),
        (0.1, 0.1, False),
    ],
)
def test_a_disk_is_low_by_its_bytes_or_its_inodes(
    share: float, inodes: float | None, is_low: bool
) -> None:
    assert Free(1, share, inodes).is_low is is_low


def _behind(url: str, messages: int) -> Scraped | None:
    found = scrape_url(url)
    return found if found("mq_reaper_archive_behind_messages") == messages else None


def test_the_command_leaves_to_the_archive_what_it_has_not_stored_and_says_that_it_is_late(
    daemons: Processes, root: Path
) -> None:
    place = ArchivingRoot(root)
    place.enable()
    place.remove(3)
    stored = place.store(2)
    reaper = daemons.reaper("--root", str(root), "--archive-late", "0.2", "--metrics", "0")
    url = f"http://127.0.0.1:{reaper.wait_for_log(r'metrics port=(.*)').group(1)}/metrics"
    eventually(lambda: not set(stored) & set(place.removed()))
    eventually(lambda: reaper.logged("the archive is behind"))
    assert len(place.removed()) == 1
    found = eventually(lambda: _behind(url, 1))
    assert found("mq_reaper_archive_late_seconds") == 0.2
    assert found("mq_reaper_archive_behind_seconds") > 0.2
    place.store()
    eventually(lambda: place.removed() == [])
    eventually(lambda: reaper.logged("the archive has caught up"))
    assert scrape_url(url)("mq_reaper_archive_behind_messages") == 0
    assert scrape_url(url)("mq_reaper_archive_behind_seconds") == 0
