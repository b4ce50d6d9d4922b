"""The auditor: each breach is found where it is, and what is allowed is let be."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.audits import audit
from harness.damage.each_breach import BREACHES, Place, lay_out_all_that_is_allowed, unstamped
from harness.messages import new_id, put_file

from mq.model.lifecycle import State
from mq.model.message import Stamp
from mq.store.audit.findings import Breach
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq.store.scan.tally import OVERDUE_AFTER_S


@pytest.fixture
def place(root: Path) -> Place:
    return Place(root)


def test_a_root_as_mq_leaves_it_is_clean(place: Place) -> None:
    lay_out_all_that_is_allowed(place)
    found = audit(place.root)
    assert found.violations == []
    assert found.is_clean
    assert found.messages == {
        State.NEW: 2,
        # A pack of three, and the three messages of one that was parted.
        State.READY: 3 + 3 + 3,
        State.DELAYED: 3,
        State.LEASED: 2,
        State.REMOVED: 4,
    }
    assert found.foreign == 0


def test_foreign_names_are_counted_and_break_nothing(place: Place) -> None:
    for path in ("queues/README", "queues/orders/torn~", "delay/orders", "new/:x", "deleted/ x"):
        (place.top / path).write_bytes(b"")
    place.folder(f"delay/orders:{new_id().text}")
    place.folder("remove/orders:x.d")
    place.folder("queues/-")
    os.mkfifo(place.queue / new_id().text)
    place.folder("leases/c.01")
    put_file(place.folder("leases/c.3") / "notes.txt")
    found = audit(place.root)
    assert found.is_clean
    assert found.foreign == 11
    assert found.foreign_name


def test_dotfiles_are_counted_apart(place: Place) -> None:
    hidden = audit(place.root).hidden
    (place.queue / ".nfs0001").write_bytes(b"")
    (place.top / "delay" / ".probe.1").write_bytes(b"")
    found = audit(place.root)
    assert (found.is_clean, found.foreign, found.hidden) == (True, 0, hidden + 2)


@pytest.mark.parametrize(("breach", "damage"), BREACHES)
def test_a_breach_is_found_where_it_is(
    place: Place, breach: Breach, damage: Callable[[Place], Path]
) -> None:
    path = damage(place)
    found = audit(place.root)
    assert [(each.breach, each.path) for each in found.violations] == [(breach, str(path))]
    assert not found.is_clean
    assert breach.value


def test_every_breach_is_shown() -> None:
    # What fsck says of a root as a whole: tests/examples/test_backups.py.
    assert {breach for breach, _ in BREACHES} == set(Breach) - {Breach.MTIMES}


def test_an_unstamped_file_in_delay_is_told_of(place: Place) -> None:
    path = unstamped(place.entry("delay"))
    assert Breach.MTIME in {each.breach for each in audit(place.root).violations}
    os.utime(path, ns=(Stamp(place.clock.now_ms()).mtime_ns(),) * 2)
    assert audit(place.root).is_clean


def test_two_names_of_one_inode_are_told_of_as_both(place: Place) -> None:
    path = place.ready()
    os.link(path, place.top / "delay" / f"orders:{path.name}")
    breaches = {each.breach for each in audit(place.root).violations}
    assert breaches == {Breach.TWO_STATES, Breach.LINKED}


def test_how_late_is_overdue_may_be_said(place: Place) -> None:
    place.entry("delay", due_in_s=0)
    place.clock.advance(OVERDUE_AFTER_S - 1)
    assert audit(place.root).is_clean
    assert [each.breach for each in audit(place.root, overdue_s=1).violations] == [Breach.OVERDUE]


def test_a_message_that_moves_meanwhile_is_in_one_state(place: Place) -> None:
    """It goes from delay/ to its queue just as the auditor has seen it in delay/."""
    path = place.entry("delay")
    ready = place.queue / path.name.partition(":")[2]

    class MovingFiles(Files):
        def status(self, path: str) -> os.stat_result | None:
            if path == str(ready) and not ready.exists():
                moving.rename(ready)
            return super().status(path)

    moving = path
    root = open_root(str(place.top), MovingFiles(), place.clock)
    assert audit(root).is_clean
    assert ready.exists()


def test_a_folder_that_goes_meanwhile_is_no_failure(place: Place) -> None:
    place.ready()

    class VanishingFiles(Files):
        def entries(self, folder: str):  # type: ignore[no-untyped-def]
            if folder == str(place.queue):
                raise FileNotFoundError(folder)
            return super().entries(folder)

    root = open_root(str(place.top), VanishingFiles(), place.clock)
    found = audit(root)
    assert found.is_clean
    assert found.messages[State.READY] == 0


def test_it_changes_nothing(place: Place) -> None:
    lay_out_all_that_is_allowed(place)

    def seen() -> dict[Path, tuple[int, int]]:
        paths = [place.top, *place.top.rglob("*")]
        return {path: (path.lstat().st_mtime_ns, path.lstat().st_ctime_ns) for path in paths}

    before = seen()
    audit(place.root)
    assert seen() == before
