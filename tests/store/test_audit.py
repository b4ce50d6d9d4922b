"""The auditor: each breach is found where it is, and what is allowed is let be."""

import hashlib
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.messages import new_id, put_entry, put_file

from mq.lifecycle import State
from mq.limits import FORGOTTEN_AFTER_S, OVERDUE_AFTER_S, SWEEP_EVERY_S
from mq.message import Stamp
from mq.store.audit import audit
from mq.store.breaches import Breach
from mq.store.files import Files
from mq.store.root import Root, open_root

NOBODYS_NS = 1_700_000_000_123_456_789


class Place:
    """A root with a queue, where a test puts things as mq would, and then spoils them."""

    def __init__(self, top: Path) -> None:
        self.top = top
        self.clock = FakeClock()
        self.root: Root = open_root(str(top), Files(), self.clock)
        self.queue = self.folder("queues/orders")

    def folder(self, path: str) -> Path:
        folder = self.top / path
        folder.mkdir(mode=0o700)
        return folder

    def ready(self, body: bytes = b"x", more: str = "") -> Path:
        return self._kept(
            put_file(self.queue / f"{new_id().text}{more}", body, self.clock.now_ms())
        )

    def entry(self, state: str, queue: str = "orders", due_in_s: float = 30) -> Path:
        due_ms = self.clock.now_ms() + round(due_in_s * 1000)
        return self._kept(put_entry(self.top / state, queue, b"x", due_ms, receives=1))

    def tombstone(self, queue: str) -> Path:
        return self._kept(put_file(self.top / "deleted" / queue, b"", self.clock.now_ms()))

    @staticmethod
    def _kept(path: Path) -> Path:
        path.chmod(0o600)
        return path


@pytest.fixture
def place(root: Path) -> Place:
    return Place(root)


def lay_out_leases(place: Place) -> None:
    for folder in ("leases/c.7", "leases/d.1.back", f"remove/c.6:{new_id().text}.l"):
        put_leased(place, folder)
    for name in ("c.7.json", "c.5.json", "c.4.lapsed", "d.1.json", "c.lock"):
        due_ms = place.clock.now_ms() + 60_000
        put_file(place.top / "leases" / name, b"{}", due_ms)


def put_leased(place: Place, folder: str, body: bytes = b"x", more: str = "") -> Path:
    """A message in a lease's folder, which is made."""
    ready = place.ready(body, more)
    return ready.rename(place.folder(folder) / f"orders:{ready.name}")


def lay_out_all_that_is_allowed(place: Place) -> None:
    place.ready()
    place.ready(b"0123456789", ",h=10")
    for state in ("new", "delay", "remove"):
        place.entry(state)
    # A crash between a claim's rename and its stamp, a moment ago.
    place.entry("delay", due_in_s=-60)
    # Half written, and taken away as forgotten: nobody ever set its time.
    for state in ("new", "remove"):
        os.utime(place.entry(state), ns=(NOBODYS_NS, NOBODYS_NS))
    # A message with its key, and two that are young: of one that is gone, and of a publish.
    keyed(place, place.ready(more=",k=night").name)
    symlink(next((place.top / "keys/orders").iterdir()) / "day", new_id().text)
    keyed(place, new_id().text, "idempotency")
    place.folder(f"remove/gone:{new_id().text}.k")
    # A lease, one that is being given back, one that was acknowledged; and what is known of others.
    lay_out_leases(place)
    with_schedule(place, "orders:nightly", MINUTELY)
    (place.top / "schedules" / ".lock").touch()
    # A deleted queue, with one in its folder and one that is still to go.
    place.tombstone("gone")
    place.entry("delay", "gone")
    folder = place.folder(f"remove/gone:{new_id().text}.d")
    place.ready().rename(folder / new_id().text)


def test_a_root_as_mq_leaves_it_is_clean(place: Place) -> None:
    lay_out_all_that_is_allowed(place)
    found = audit(place.root)
    assert found.violations == []
    assert found.is_clean
    assert found.messages == {
        State.NEW: 2,
        State.READY: 3,
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
    place.folder("deleted/orders2")
    place.folder("leases/c.1.json")
    place.folder("leases/c.01")
    put_file(place.top / "leases/c.2")
    put_file(place.folder("leases/c.3") / "notes.txt")
    found = audit(place.root)
    assert found.is_clean
    assert found.foreign == 14
    assert found.foreign_name


def test_dotfiles_are_counted_apart(place: Place) -> None:
    hidden = audit(place.root).hidden
    (place.queue / ".nfs0001").write_bytes(b"")
    (place.top / "delay" / ".probe.1").write_bytes(b"")
    found = audit(place.root)
    assert (found.is_clean, found.foreign, found.hidden) == (True, 0, hidden + 2)


def linked(place: Place) -> Path:
    path = place.ready()
    os.link(path, place.top / "elsewhere")
    return path


def in_two_states(place: Place, first: str, second: str) -> Path:
    path = place.entry(first)
    queue, _, message_id = path.name.partition(":")
    other = place.queue / message_id if second == "queues" else place.top / second / path.name
    assert queue == "orders"
    put_file(other, b"x", place.clock.now_ms()).chmod(0o600)
    return path


def unstamped(path: Path) -> Path:
    os.utime(path, ns=(NOBODYS_NS, NOBODYS_NS))
    return path


def overdue(place: Place) -> Path:
    path = place.entry("delay", due_in_s=1)
    place.clock.advance(2 + OVERDUE_AFTER_S)
    return path


def leased_and_ready(place: Place, folder: str) -> Path:
    path = put_leased(place, folder)
    other = place.queue / path.name.partition(":")[2]
    put_file(other, b"x", place.clock.now_ms())
    return path


def lapsed(place: Place) -> Path:
    put_file(place.top / "leases/c.1.json", b"{}", place.clock.now_ms())
    place.clock.advance(1 + OVERDUE_AFTER_S)
    return place.folder("leases/c.1")


def stray_in_a_lease(place: Place) -> Path:
    path = put_leased(place, "leases/c.1")
    return path.rename(path.with_name(path.name.replace("orders", "unheard-of")))


def forgotten(place: Place) -> Path:
    path = place.entry("new")
    place.clock.advance(FORGOTTEN_AFTER_S + SWEEP_EVERY_S + 2 * OVERDUE_AFTER_S)
    return path


def with_mode(path: Path, mode: int) -> Path:
    path.chmod(mode)
    return path


def symlink(path: Path, target: str) -> Path:
    path.symlink_to(target)
    return path


def without(place: Place, name: str) -> Path:
    path = place.top / name
    if path.is_dir():
        path.rmdir()
    else:
        path.unlink()
    return path


def rewritten(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def misplaced(place: Place, path: Path, state: str) -> Path:
    return path.rename(place.folder(f"{state}/00000000") / path.name)


MINUTELY = '{"version": 1, "every_s": 60}\n'


def with_schedule(place: Place, name: str, said: str) -> Path:
    return put_file(place.top / "schedules" / name, said.encode(), due_ms=1)


def with_settings(place: Place, queue: str, text: str) -> Path:
    path = place.top / "settings" / f"{queue}.json"
    path.touch(mode=0o600)
    return rewritten(path, text)


def keyed(place: Place, target: str, kind: str = "keys", key: str = "night") -> Path:
    """The key's link, which says that."""
    place.folder(f"{kind}/orders")
    hashed = hashlib.sha256(key.encode()).hexdigest()[:2]
    return symlink(place.folder(f"{kind}/orders/{hashed}") / key, target)


def second_of_a_key(place: Place) -> Path:
    keyed(place, place.ready(more=",k=night").name)
    return place.ready(more=",k=night")


def orphan(place: Place, kind: str, target: str) -> Path:
    path = keyed(place, target, kind)
    place.clock.advance(FORGOTTEN_AFTER_S + 3 * SWEEP_EVERY_S)
    return path


SPOILT: list[tuple[Breach, Callable[[Place], Path]]] = [
    (Breach.FORMAT, lambda place: without(place, "format")),
    (Breach.FORMAT, lambda place: rewritten(place.top / "format", "mq 2\n")),
    (Breach.FOLDER, lambda place: without(place, "delay")),
    (Breach.SYMLINK, lambda place: symlink(without(place, "delay"), "/tmp")),
    (Breach.SYMLINK, lambda place: symlink(place.queue / new_id().text, "/etc/hostname")),
    (Breach.SYMLINK, lambda place: symlink(place.top / "delay" / "orders:x", "nowhere")),
    (Breach.SYMLINK, lambda place: symlink(place.top / "queues" / "other", "orders")),
    (Breach.MODE, lambda place: with_mode(place.ready(), 0o640)),
    (Breach.MODE, lambda place: with_mode(place.entry("remove"), 0o644)),
    (Breach.MODE, lambda place: with_mode(place.queue, 0o755)),
    (Breach.MODE, lambda place: with_mode(place.top / "new", 0o1700)),
    (Breach.MODE, lambda place: with_mode(place.top / "format", 0o666)),
    (Breach.MODE, lambda place: with_mode(place.tombstone("gone"), 0o400)),
    (Breach.MODE, lambda place: with_mode(place.folder(f"remove/q:{new_id().text}.d"), 0o750)),
    (Breach.TWO_STATES, lambda place: in_two_states(place, "delay", "queues")),
    (Breach.TWO_STATES, lambda place: in_two_states(place, "new", "queues")),
    (Breach.TWO_STATES, lambda place: in_two_states(place, "remove", "queues")),
    (Breach.TWO_STATES, lambda place: in_two_states(place, "delay", "remove")),
    (Breach.TWO_STATES, lambda place: in_two_states(place, "new", "delay")),
    (Breach.TWO_STATES, lambda place: leased_and_ready(place, "leases/c.1")),
    (Breach.TWO_STATES, lambda place: leased_and_ready(place, "leases/c.1.back")),
    (Breach.TWO_STATES, lambda place: leased_and_ready(place, f"remove/c.1:{new_id().text}.l")),
    (Breach.LINKED, linked),
    (Breach.LAPSED, lapsed),
    (Breach.SHORT, lambda place: put_leased(place, "leases/c.1", b"123456789", ",h=10")),
    (Breach.MODE, lambda place: with_mode(place.folder("leases/c.1"), 0o755)),
    (Breach.MODE, lambda place: with_mode(put_file(place.top / "leases/c.1.json"), 0o644)),
    (Breach.MODE, lambda place: with_mode(put_file(place.top / "leases/c.lock"), 0o644)),
    (Breach.STRAY, stray_in_a_lease),
    (Breach.KEY, lambda place: put_leased(place, "leases/c.1", more=",k=night")),
    (Breach.MTIME, lambda place: unstamped(place.ready())),
    (Breach.SHORT, lambda place: place.ready(b"123456789", ",h=10")),
    (Breach.OVERDUE, overdue),
    (Breach.FORGOTTEN, forgotten),
    (Breach.STRAY, lambda place: place.entry("delay", "unheard-of")),
    (Breach.TOMBSTONE, lambda place: place.tombstone("orders")),
    (Breach.MISPLACED, lambda place: misplaced(place, place.ready(), "queues/orders")),
    (Breach.MISPLACED, lambda place: misplaced(place, place.entry("delay"), "delay")),
    (Breach.MISPLACED, lambda place: misplaced(place, place.entry("remove"), "remove")),
    (Breach.SETTINGS, lambda place: with_settings(place, "orders", "{}x")),
    (Breach.SETTINGS, lambda place: with_settings(place, "orders", '{"shards": 17}')),
    (Breach.SETTINGS, lambda place: with_settings(place, "orders", '{"visibility_s": "x"}')),
    (Breach.SETTINGS, lambda place: with_settings(place, "unheard-of", "{}")),
    (Breach.SCHEDULE, lambda place: with_schedule(place, "orders:nightly", "{}")),
    (Breach.SCHEDULE, lambda place: with_schedule(place, "orders:nightly", MINUTELY[:-1])),
    (Breach.SCHEDULE, lambda place: with_schedule(place, "unheard-of:nightly", MINUTELY)),
    (Breach.ORPHAN, lambda place: orphan(place, "firings", new_id().text)),
    (Breach.PURGED, lambda place: put_file(place.top / "purged" / "unheard-of", due_ms=1)),
    (Breach.KEY, lambda place: place.ready(more=",k=night")),
    (Breach.KEY, second_of_a_key),
    (Breach.ORPHAN, lambda place: orphan(place, "keys", new_id().text + ",k=night")),
    (Breach.ORPHAN, lambda place: orphan(place, "keys", "/etc/passwd")),
    (Breach.ORPHAN, lambda place: orphan(place, "idempotency", new_id().text)),
    (Breach.KEYS, lambda place: place.folder("keys/unheard-of")),
    (Breach.KEYS, lambda place: place.folder("idempotency/unheard-of")),
]


@pytest.mark.parametrize(("breach", "spoil"), SPOILT)
def test_a_breach_is_found_where_it_is(
    place: Place, breach: Breach, spoil: Callable[[Place], Path]
) -> None:
    path = spoil(place)
    found = audit(place.root)
    assert [(each.breach, each.path) for each in found.violations] == [(breach, str(path))]
    assert not found.is_clean
    assert breach.value


def test_every_breach_is_shown() -> None:
    assert {breach for breach, _ in SPOILT} == set(Breach)


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
