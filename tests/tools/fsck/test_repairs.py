"""Every breach is put right, or stays with a reason; no message's body is lost by it."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.checking import Heard, checked
from harness.damage.each_breach import (
    BREACHES,
    Place,
    beside_its_pack,
    keyed,
    misplaced,
    put_leased,
)
from harness.folders import files_below
from harness.messages import new_id, put_file

from mq.model.names import QueueName
from mq.store.audit.findings import Breach
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.tools.fsck.checking import Doing
from mq.tools.fsck.report import Outcome

STAYS = {
    Breach.ARCHIVE: "fsck does not guess",
    Breach.STORAGE: "the disk",
    Breach.FORMAT: "format",
    Breach.LINKED: "name",
}


@pytest.fixture
def place(root: Path) -> Place:
    return Place(root)


def bodies(top: Path) -> set[bytes]:
    """What regular files say that are no daemon's own."""
    beside = ("members", "shovels", "leases", "journal", "settings", "deleted", "purged")
    return {
        path.read_bytes()
        for path in files_below(top)
        if path.relative_to(top).parts[0] not in beside
        and ".spark" not in path.parts
        and path.is_file()
        and not path.is_symlink()
        and not path.name.startswith(".")
    }


def stays(breach: Breach, path: Path) -> bool:
    """What no program decides."""
    if breach in STAYS:
        return True
    if breach is Breach.SETTINGS:
        return path.name == "orders.json"
    if breach is Breach.SYMLINK:
        return path.name in ("delay", "history")
    if breach is Breach.IN_THE_WAY:
        return path.name == "lost"
    is_leased = path.parent.parent.name == "leases"
    return (breach in (Breach.SHORT, Breach.UNREADABLE) and is_leased) or (
        breach is Breach.JOURNAL and path.read_bytes() == b"{}"
    )


@pytest.mark.parametrize(("breach", "damage"), BREACHES)
def test_what_is_broken_is_put_right_or_stays_with_a_reason(
    place: Place, breach: Breach, damage: Callable[[Place], Path]
) -> None:
    path = damage(place)
    before = bodies(place.top)
    dry = checked(place.root, Doing.DRY_RUN)
    assert [(each.violation.breach, each.violation.path) for each in dry.remaining.examples] == [
        (breach, str(path))
    ]
    assert bodies(place.top) == before
    kept = stays(breach, path)
    report = checked(place.root, Doing.REPAIR)
    if kept:
        assert report.outcome is Outcome.BROKEN
        assert all(told.what for told in report.remaining.examples)
        return
    assert report.remaining.examples == []
    assert report.outcome is Outcome.PUT_RIGHT
    assert breach in report.put_right.counts
    assert all(told.what for told in report.put_right.examples)
    # A parted pack goes: its messages are its items.
    goes = {each for each in before if breach is Breach.PARTED and each.startswith(b'{"sizes"')}
    assert bodies(place.top) >= before - {b"{}"} - goes
    assert checked(place.root).outcome is Outcome.CLEAN


def test_two_files_of_one_message_are_both_kept(place: Place) -> None:
    removed = place.entry("remove")
    other = put_file(place.queue / removed.name.partition(":")[2], b"another", 0)
    report = checked(place.root, Doing.REPAIR)
    assert report.put_right.counts == {Breach.TWO_STATES: 1}
    assert removed.read_bytes() == b"x"
    assert not other.exists()
    (aside,) = (place.top / "lost").iterdir()
    assert aside.read_bytes() == b"another"
    assert aside.name.endswith(f":{removed.name}")
    assert checked(place.root).amounts.lost == 1


@pytest.mark.parametrize("later", ["delay", "remove"])
def test_of_two_names_of_a_file_the_later_one_stays(place: Place, later: str) -> None:
    path = place.ready()
    stays_here = place.top / later / f"orders:{path.name}"
    os.link(path, stays_here)
    os.utime(stays_here, ns=((place.clock.now_ms() + 60_000) * 10**6,) * 2)
    report = checked(place.root, Doing.REPAIR)
    assert report.outcome is Outcome.PUT_RIGHT
    assert not path.exists()
    assert stays_here.stat().st_nlink == 1
    assert not (place.top / "lost").exists()


def test_a_message_beside_its_damaged_pack_is_kept(place: Place) -> None:
    item = beside_its_pack(place)
    (pack,) = (each for each in place.queue.iterdir() if each != item)
    os.truncate(pack, 5)
    checked(place.root, Doing.REPAIR)
    assert item.exists()
    assert (place.top / "queues/orders_SIDELINE" / pack.name).exists()


def test_what_is_unreadable_goes_alone_and_says_why(place: Place) -> None:
    whole = place.ready(b"0123456789", ",h=10")
    torn = place.ready(b"01234", ",h=10")
    checked(place.root, Doing.REPAIR)
    assert whole.exists()
    aside = place.top / "queues/orders_SIDELINE" / torn.name
    assert aside.read_bytes() == b"01234"
    assert aside.stat().st_mtime_ns % 1000 == 5


def test_of_two_messages_with_one_key_the_other_goes_to_the_sideline(place: Place) -> None:
    first = place.ready(more=",k=night")
    keyed(place, first.name)
    second = place.ready(more=",k=night")
    checked(place.root, Doing.REPAIR)
    assert first.exists()
    assert (place.top / "queues/orders_SIDELINE" / second.name).exists()


def test_a_message_without_its_link_gets_it(place: Place) -> None:
    path = place.ready(more=",k=night")
    checked(place.root, Doing.REPAIR)
    (link,) = (each for each in (place.top / "queues").glob("*/.keys/*/*") if each.name == "night")
    assert os.readlink(link) == path.name


def test_a_queue_that_a_hand_took_comes_back_with_what_it_has(place: Place) -> None:
    path = place.entry("delay")
    settings = put_file(place.top / "settings/orders.json", b'{"visibility_s": 50}')
    place.queue.rmdir()
    report = checked(place.root, Doing.REPAIR)
    assert report.outcome is Outcome.PUT_RIGHT
    assert place.queue.is_dir()
    assert path.exists()
    assert settings.exists()


def test_a_folder_with_something_in_it_is_left(place: Place) -> None:
    folder = place.folder("settings/orders.json")
    (folder / "notes").write_text("mine")
    report = checked(place.root, Doing.REPAIR)
    assert [told.what for told in report.remaining.examples] == ["something lies in it"]
    assert (folder / "notes").exists()


def test_a_folder_that_is_made_again_hands_its_group_on(place: Place) -> None:
    place.top.chmod(0o2700)
    for folder in (place.top / "members", place.top / "shovels"):
        folder.rmdir()
    report = checked(place.root, Doing.REPAIR)
    assert report.put_right.counts == {Breach.FOLDER: 2}
    assert (place.top / "shovels").stat().st_mode & 0o7777 == 0o2700
    assert checked(place.root).outcome is Outcome.CLEAN


def test_a_mode_that_hands_the_group_on_stays(place: Place) -> None:
    place.queue.chmod(0o2700)
    assert checked(place.root).outcome is Outcome.CLEAN
    place.queue.chmod(0o2770)
    assert checked(place.root, Doing.REPAIR).outcome is Outcome.PUT_RIGHT
    assert place.queue.stat().st_mode & 0o7777 == 0o2700


def test_all_queues_away_take_nothing_with_them(place: Place) -> None:
    keyed(place, place.ready(more=",k=night").name)
    settings = put_file(place.top / "settings/orders.json", b'{"visibility_s": 50}')
    (place.top / "queues").rename(place.top / "aside")
    report = checked(place.root, Doing.REPAIR)
    assert {told.violation.breach for told in report.remaining.examples} == {Breach.FOLDER}
    assert settings.exists()
    (place.top / "aside").rename(place.top / "queues")
    assert checked(place.root).outcome is Outcome.CLEAN


def test_a_leased_message_is_let_be(place: Place) -> None:
    path = put_leased(place, "leases/c.1", b"123456789", ",h=10")
    report = checked(place.root, Doing.REPAIR)
    assert [told.what for told in report.remaining.examples] == [
        "it is in a lease; mq sidelines it once it comes back"
    ]
    assert path.exists()


def test_what_another_holds_is_tried_again_and_told(place: Place) -> None:
    path = misplaced(place, place.ready(), "queues/orders")
    descriptor = os.open(path, os.O_RDWR)
    files = Files()
    assert files.lock(descriptor)
    heard = Heard()
    report = checked(place.root, Doing.REPAIR, heard=heard)
    assert [told.what for told in report.remaining.examples] == ["another process has it locked"]
    os.close(descriptor)
    held = os.open(path, os.O_RDWR)
    assert files.lock(held)
    heard = Heard(on_pause=lambda seconds: os.close(held) if len(heard.pauses_s) == 1 else None)
    assert checked(place.root, Doing.REPAIR, heard=heard).outcome is Outcome.PUT_RIGHT
    assert not path.exists()


def test_a_place_that_is_taken_is_not_written_over(place: Place) -> None:
    path = place.ready(b"one")
    other = place.folder("queues/orders/00000000") / path.name
    put_file(other, b"two", place.clock.now_ms())
    report = checked(place.root, Doing.REPAIR)
    assert report.outcome is Outcome.PUT_RIGHT
    assert path.read_bytes() == b"one"
    (aside,) = (place.top / "lost").iterdir()
    assert aside.read_bytes() == b"two"


def test_a_long_name_is_cut_in_lost(place: Place) -> None:
    (place.queue / ("x" * 250)).symlink_to("nowhere")
    report = checked(place.root, Doing.REPAIR)
    assert report.outcome is Outcome.PUT_RIGHT
    (aside,) = (place.top / "lost").iterdir()
    assert len(aside.name) == 255


def test_queues_that_are_named_are_put_right_alone(place: Place) -> None:
    others = place.folder("queues/others")
    for queue in (place.queue, others):
        put_file(queue / new_id().text, b"x", place.clock.now_ms()).chmod(0o640)
    keyed(place, place.ready(more=",k=day").name, key="night")
    report = checked(place.root, Doing.REPAIR, (QueueName("others"),))
    assert report.put_right.counts == {Breach.MODE: 1}
    assert set(report.amounts.of_queues) == {"others"}
    assert checked(place.root).remaining.counts[Breach.KEY] == 1


def test_a_breach_that_does_not_stay_is_not_told(place: Place) -> None:
    path = place.ready()
    path.chmod(0o640)

    def settles(seconds: float) -> None:
        assert seconds <= 5
        path.chmod(0o600)

    heard = Heard(on_pause=settles)
    assert checked(place.root, heard=heard, again_after_s=5).outcome is Outcome.CLEAN
    assert len(heard.pauses_s) == 1


def test_every_folder_of_the_root_is_told_of(place: Place) -> None:
    heard = Heard()
    checked(place.root, heard=heard)
    root: Root = place.root
    assert set(root.layout.folders()) <= set(heard.folders)
