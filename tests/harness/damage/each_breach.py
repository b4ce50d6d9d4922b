"""A root with a queue, and every way in which an audit may find it broken."""

import errno
import hashlib
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from harness.clock import FakeClock
from harness.messages import new_id, put_entry, put_file
from harness.needs import cannot_run
from harness.packs import new_pack, put_pack
from mq.model.lifecycle import State
from mq.model.limits import FORGOTTEN_AFTER_S, SWEEP_EVERY_S
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.store.audit.findings import Breach
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.packs import Try, parts
from mq.store.opening import open_root
from mq.store.scan.tally import OVERDUE_AFTER_S

NOBODYS_NS = 1_700_000_000_123_456_789


class Place:
    """A root with a queue, where a test puts things as mq would, and then damages them."""

    def __init__(self, top: Path, files: Files | None = None) -> None:
        self.top = top
        self.clock = FakeClock()
        self.root: Root = open_root(str(top), files or Files(), self.clock)
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


def packed(place: Place, items: int = 3, bodies: list[bytes] | None = None) -> Path:
    """A ready pack."""
    pack = new_pack(items)
    return put_pack(place.queue / pack.text, pack, due_ms=place.clock.now_ms(), bodies=bodies)


def beside_its_pack(place: Place) -> Path:
    item = MessageId.parse(packed(place).name).item(2)
    return put_file(place.queue / item.text, b"x", place.clock.now_ms())


def parting(place: Place, is_parted: bool = True) -> Path:
    """A try to part a pack, or a parted pack, of which one message is at its place."""
    pack = new_pack(3)
    each = Try.begun(QueueName.parse("orders"), pack, State.READY)
    layout, now_ms = place.root.layout, place.clock.now_ms()
    if not Path(parts(layout)).exists():
        place.folder("new/.parts")
    folder = place.folder(f"new/.parts/{each.name}")
    for item in pack.all_items()[1:]:
        put_file(Path(each.item_path(layout, item)), b"x" if is_parted else b"{}", now_ms)
    if not is_parted:
        return folder
    put_file(place.queue / pack.item(1).text, b"x", now_ms)
    return put_pack(Path(each.pack_path(layout)), pack, due_ms=now_ms)


def lay_out_all_that_is_allowed(place: Place) -> None:
    place.ready()
    packed(place)
    for is_parted in (True, False):
        parting(place, is_parted)
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
    keyed(place, new_id().text, key="day")
    keyed(place, new_id().text, "idempotency")
    # A lease, one that is being given back, one that was acknowledged; and what is known of others.
    lay_out_leases(place)
    with_schedule(place, "orders:nightly", MINUTELY)
    (place.top / "schedules" / ".lock").touch(0o600)
    # A job of a bulk publish, and one that was given up.
    given_up(place)
    place.folder(f"new/.spark/{'b' * 32}")
    # What a doctor is at, or has left.
    put_file(place.folder(f".doctor.{'0' * 16}") / "alive")
    for state in ("new", "queues", "delay", "remove"):
        put_file(place.top / state / f".doctor.{'0' * 16}")
    # A deleted queue, with one in its folder and one that is still to go.
    place.tombstone("gone")
    place.entry("delay", "gone")
    folder = place.folder(f"remove/gone:{new_id().text}.d")
    place.ready().rename(folder / new_id().text)


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


def half_released(place: Place, manifest: str = "") -> Path:
    """Somebody died over giving it back, and nobody went on."""
    if manifest:
        put_file(place.top / manifest, b"{}", place.clock.now_ms())
    return old(place, put_leased(place, "leases/d.1.back").parent, 0)


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


def unfinished(place: Place, folder: str, name: str) -> Path:
    """What a process that died was writing."""
    return put_file(place.top / folder / f".{name}.{'0' * 16}")


def staged_job(place: Place) -> Path:
    place.folder("new/.spark")
    return place.folder(f"new/.spark/{'b' * 32}")


def given_up(place: Place) -> Path:
    """The mark of a job that was given up."""
    return put_file(place.folder("new/.spark") / ("c" * 32))


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
    if not (place.top / f"queues/orders/.{kind}").exists():
        place.folder(f"queues/orders/.{kind}")
    hashed = hashlib.sha256(key.encode()).hexdigest()[:2]
    return symlink(place.folder(f"queues/orders/.{kind}/{hashed}") / key, target)


def second_of_a_key(place: Place) -> Path:
    keyed(place, place.ready(more=",k=night").name)
    return place.ready(more=",k=night")


def stale_entry(place: Place, folder: str, more: str) -> Path:
    """Of a message that lives no more, of long ago."""
    path = place.top / folder / f"{new_id().text}{more}"
    for each in reversed(path.parents[: len(Path(folder).parts)]):
        each.mkdir(mode=0o700)
    path.symlink_to("-")
    os.utime(path, (0, 0), follow_symlinks=False)
    return path


def orphan(place: Place, kind: str, target: str) -> Path:
    path = keyed(place, target, kind)
    place.clock.advance(FORGOTTEN_AFTER_S + 3 * SWEEP_EVERY_S)
    return path


def owned(path: Path) -> Path:
    if os.geteuid() != 0:
        cannot_run("needs root, to give a file to another user")
    os.chown(path, 12345, -1)
    return path


def old(place: Place, path: Path, age_s: float) -> Path:
    """Which nobody has touched since."""
    os.utime(path, ns=(Stamp(place.clock.now_ms()).mtime_ns(),) * 2)
    place.clock.advance(age_s + 3 * SWEEP_EVERY_S)
    return path


def waited(place: Place, path: Path, age_s: float) -> Path:
    place.clock.advance(age_s + 3 * SWEEP_EVERY_S)
    return path


def unlisted(place: Place, name: str) -> Path:
    """Of which the storage says that it is broken."""

    class BrokenFiles(Files):
        def entries(self, folder: str):  # type: ignore[no-untyped-def]
            if folder == str(place.top / name):
                raise OSError(errno.EIO, "broken", folder)
            return super().entries(folder)

    place.root = replace(place.root, files=BrokenFiles())
    return place.top / name


def file_of_a_sideline(place: Place) -> Path:
    return put_file(place.top / "queues/orders_SIDELINE")


def twice_ready(place: Place, first: str, second: str) -> Path:
    path = place.ready()
    digits = path.name.replace("-", "")
    buckets = {"flat": "", "bucket": digits[:8], "deep": f"{digits[:8]}/{digits[8:10]}"}
    for bucket in (digits[:8], f"{digits[:8]}/{digits[8:10]}"):
        place.folder(f"queues/orders/{bucket}")
    body = path.read_bytes()
    path.unlink()
    for where in (first, second):
        put_file(place.queue / buckets[where] / path.name, body, place.clock.now_ms())
    return place.queue / buckets[first] / path.name


def ready_and_sidelined(place: Place) -> Path:
    path = place.ready()
    return put_file(place.folder("queues/orders_SIDELINE") / path.name, b"x", place.clock.now_ms())


def committed(place: Place, said: bytes) -> Path:
    path = put_file(place.top / "journal" / f"{'a' * 32}.json", said)
    place.clock.advance(3 * SWEEP_EVERY_S)
    return path


def in_archive(place: Place, name: str, content: bytes) -> Path:
    return put_file(place.folder("archive") / name, content)


JOURNAL = (
    b'{"version": 1, "job": "' + b"a" * 32 + b'", "attempts": [], "counts": [], "to": [], '
    b'"scheduled": false}\n'
)

HOUR_S = 3600
DAY_S = 24 * HOUR_S

BREACHES: list[tuple[Breach, Callable[[Place], Path]]] = [
    (Breach.FORMAT, lambda place: without(place, "format")),
    (Breach.FORMAT, lambda place: rewritten(place.top / "format", "mq 4\n")),
    (Breach.FOLDER, lambda place: without(place, "delay")),
    (Breach.SYMLINK, lambda place: symlink(without(place, "delay"), "/tmp")),
    (Breach.SYMLINK, lambda place: symlink(place.top / "history", "/tmp")),
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
    (Breach.LAPSED, lambda place: half_released(place, "leases/d.1.json")),
    (Breach.LAPSED, half_released),
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
    (Breach.ENTRY, lambda place: place.ready(more=",e=60")),
    (Breach.ENTRY, lambda place: place.ready(b"X-Message-Tags: a\nbody", ",t=1,h=18")),
    (Breach.ORPHAN, lambda place: stale_entry(place, "expiring/orders/00000000", ",e=60")),
    (Breach.ORPHAN, lambda place: stale_entry(place, "tags/orders/ca/a", ",t=1,h=18")),
    (Breach.ORPHAN, lambda place: orphan(place, "idempotency", new_id().text)),
    (Breach.STORAGE, lambda place: unlisted(place, "queues/orders")),
    (Breach.STORAGE, lambda place: unlisted(place, "settings")),
    (Breach.IN_THE_WAY, lambda place: place.folder("deleted/orders2")),
    (Breach.IN_THE_WAY, lambda place: place.folder("leases/c.1.json")),
    (Breach.IN_THE_WAY, lambda place: put_file(place.top / "leases/c.2")),
    (Breach.IN_THE_WAY, lambda place: place.folder("settings/orders.json")),
    (Breach.IN_THE_WAY, lambda place: place.folder("schedules/orders:nightly")),
    (Breach.IN_THE_WAY, lambda place: place.folder("purged/orders")),
    (Breach.IN_THE_WAY, lambda place: place.folder("members/leader")),
    (Breach.IN_THE_WAY, lambda place: place.folder("shovels/orders.lock")),
    (Breach.IN_THE_WAY, lambda place: put_file(place.top / "queues/orders/.keys")),
    (Breach.IN_THE_WAY, lambda place: put_file(place.folder("queues/orders/.keys") / "0f")),
    (Breach.IN_THE_WAY, lambda place: put_file(keyed(place, "x").parent / "day")),
    (Breach.IN_THE_WAY, lambda place: put_file(place.queue / "00000000")),
    (Breach.IN_THE_WAY, lambda place: put_file(place.folder("delay/00000000") / "00")),
    (Breach.IN_THE_WAY, lambda place: put_file(place.top / "history")),
    (Breach.IN_THE_WAY, lambda place: put_file(place.top / "lost")),
    (Breach.IN_THE_WAY, file_of_a_sideline),
    (Breach.OWNER, lambda place: owned(place.ready())),
    (Breach.OWNER, lambda place: owned(place.queue)),
    (Breach.OWNER, lambda place: owned(put_file(place.top / "deleted/.lock"))),
    (Breach.OWNER, lambda place: owned(put_file(place.top / "schedules/.lock"))),
    (Breach.OWNER, lambda place: owned(place.folder("history"))),
    (Breach.UNREADABLE, lambda place: place.ready(b"\xff\xff", ",h=2")),
    (Breach.PACK, lambda place: put_file(packed(place), b'{"sizes": [1, 2, 3]}\n', 1)),
    (Breach.PACK, lambda place: packed(place, bodies=[b"one", b"too few"])),
    (Breach.ITEM, beside_its_pack),
    (Breach.PARTED, lambda place: waited(place, parting(place), 0)),
    (Breach.LEFTOVER, lambda place: waited(place, parting(place, is_parted=False), HOUR_S)),
    (Breach.TWO_STATES, lambda place: twice_ready(place, "flat", "bucket")),
    (Breach.TWO_STATES, lambda place: twice_ready(place, "flat", "deep")),
    (Breach.TWO_STATES, lambda place: twice_ready(place, "bucket", "deep")),
    (Breach.TWO_STATES, ready_and_sidelined),
    (Breach.JOURNAL, lambda place: committed(place, JOURNAL)),
    (Breach.JOURNAL, lambda place: committed(place, b"{}")),
    (Breach.LEFTOVER, lambda place: old(place, place.tombstone("gone"), HOUR_S)),
    (Breach.LEFTOVER, lambda place: old(place, put_file(place.top / "shovels/gone.json"), 0)),
    (
        Breach.LEFTOVER,
        lambda place: old(place, put_file(place.folder("active") / "gone.lock", b"{}"), 0),
    ),
    (Breach.LEFTOVER, lambda place: old(place, put_file(place.top / "members/a.json"), DAY_S)),
    (Breach.LEFTOVER, lambda place: old(place, put_file(place.top / "leases/c.1.json"), 600)),
    (Breach.LEFTOVER, lambda place: old(place, unfinished(place, "settings", "orders"), HOUR_S)),
    (Breach.LEFTOVER, lambda place: old(place, unfinished(place, "journal", "x"), HOUR_S)),
    (Breach.LEFTOVER, lambda place: old(place, put_file(place.top / "journal/x.done"), 7 * DAY_S)),
    (Breach.LEFTOVER, lambda place: old(place, staged_job(place), DAY_S)),
    (Breach.LEFTOVER, lambda place: old(place, given_up(place), DAY_S)),
    (Breach.SYMLINK, lambda place: symlink(staged_job(place).with_name("c" * 32), "nowhere")),
    (Breach.ARCHIVE, lambda place: in_archive(place, "enabled.json", b"{}")),
    (Breach.ARCHIVE, lambda place: in_archive(place, "disabled.json", b"{")),
    (Breach.ARCHIVE, lambda place: in_archive(place, "7.stored", b"q:x\n")),
]
