"""A root in which all kinds of things have happened, and damage that chance does to it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

from harness.damage.each_breach import Place, keyed, packed
from harness.messages import new_id, put_file
from mq.model.names import QueueName
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.operations.queues import delete_queue

HOURS_S = 3 * 3600
ALIVE = ("queues", "delay", "leases")


class Lived:
    """A root in which all kinds of things have happened, and what must not be lost of it."""

    def __init__(self, top: Path, chance: Random) -> None:
        self.place = Place(top)
        self.chance = chance
        self.bodies: set[bytes] = set()
        place = self.place
        for number in range(4):
            self.published(place.ready(f"ready {number}".encode()))
        self.in_a_bucket()
        for number in range(3):
            path = place.entry("delay")
            path.write_bytes(f"delayed {number}".encode())
            self.published(path)
        self.published(packed(place))
        pack = packed(place)
        self.published(pack.rename(place.top / "delay" / f"orders:{pack.name}"))
        path = place.ready(b"with a key", ",k=night")
        keyed(place, path.name)
        self.published(path)
        place.entry("remove")
        place.folder("queues/others")
        self.restamped()

    def published(self, path: Path) -> Path:
        self.bodies.add(path.read_bytes())
        return path

    def in_a_bucket(self) -> None:
        path = self.place.ready(b"in a bucket")
        bucket = self.place.folder(f"queues/orders/{path.name.replace('-', '')[:8]}")
        self.published(path.rename(bucket / path.name))

    def restamped(self) -> None:
        """As mq would have: writing has changed the mtimes."""
        for path in self.alive():
            late_ms = self.place.clock.now_ms() + 60_000
            late_ms += late_ms % 1000 == 0  # With whole seconds alone it looks like a copy.
            os.utime(path, ns=(late_ms * 10**6,) * 2)

    def alive(self) -> list[Path]:
        return sorted(
            path
            for state in ALIVE
            for path in (self.place.top / state).rglob("*")
            if path.is_file() and not path.is_symlink() and len(path.name) > 35
        )

    def any_of(self, *states: str) -> Path | None:
        found = [
            path for path in self.alive() if path.relative_to(self.place.top).parts[0] in states
        ]
        return self.chance.choice(found) if found else None


Damage = Callable[[Lived], bool]
"""Whether it did any."""


def other_mode(lived: Lived) -> bool:
    paths = [lived.place.queue, *lived.alive()]
    lived.chance.choice(paths).chmod(lived.chance.choice([0o755, 0o640, 0o444]))
    return True


def other_time(lived: Lived) -> bool:
    if (path := lived.any_of("queues", "delay")) is None:
        return False
    odd_ns = (lived.place.clock.now_ms() + 10_000) * 10**6 + lived.chance.randrange(10, 1000)
    os.utime(path, ns=(odd_ns, odd_ns))
    return True


def other_bucket(lived: Lived) -> bool:
    if (path := lived.any_of("queues")) is None or "SIDELINE" in str(path):
        return False
    folder = lived.place.queue / lived.chance.choice(["00000000", "p3-00000000"])
    folder.mkdir(mode=0o700, exist_ok=True)
    path.rename(folder / path.name)
    return True


def second_name(lived: Lived) -> bool:
    if (path := lived.any_of("queues")) is None or path.stat().st_nlink > 1:
        return False
    other = lived.place.top / "delay" / f"orders:{path.name}"
    if other.exists():
        return False
    late_ns = (lived.place.clock.now_ms() + 60_000) * 10**6
    os.utime(path, ns=(late_ns, late_ns))
    os.link(path, other)
    return True


def second_file(lived: Lived) -> bool:
    if (path := lived.any_of("queues")) is None:
        return False
    other = lived.place.top / "delay" / f"orders:{path.name}"
    if other.exists():
        return False
    put_file(other, path.read_bytes() + b", copied", lived.place.clock.now_ms() + 60_000)
    return True


def no_link(lived: Lived) -> bool:
    links = [path for path in (lived.place.top / "queues").glob("*/.keys/*/*") if path.is_symlink()]
    for path in links:
        path.unlink()
    return bool(links)


def link_of_another(lived: Lived) -> bool:
    links = [path for path in (lived.place.top / "queues").glob("*/.keys/*/*") if path.is_symlink()]
    for path in links:
        path.unlink()
        path.symlink_to(f"{new_id().text},k=night")
    return bool(links)


def second_of_a_key(lived: Lived) -> bool:
    lived.published(lived.place.ready(f"again {lived.chance.random()}".encode(), ",k=night"))
    return True


def symlink(lived: Lived) -> bool:
    folder = lived.chance.choice(["queues", "queues/orders", "delay", "remove", "settings"])
    (lived.place.top / folder / f"x{lived.chance.random()}").symlink_to("/etc/passwd")
    return True


def in_the_way(lived: Lived) -> bool:
    names = ["queues/orders/.groups", "queues/orders/.idempotency", "queues/orders_SIDELINE"]
    name = lived.chance.choice(names)
    if (path := lived.place.top / name).exists():
        return False
    put_file(path, b"somebody's")
    return True


def folder_in_the_way(lived: Lived) -> bool:
    name = lived.chance.choice(["settings/orders.json", "purged/orders", "members/refresh"])
    if not (lived.place.top / name).parent.is_dir():
        return False
    (lived.place.top / name).mkdir(mode=0o700, exist_ok=True)
    return True


def no_folder(lived: Lived) -> bool:
    folder = lived.place.top / lived.chance.choice(["members", "shovels", "journal", "purged"])
    shutil.rmtree(folder, ignore_errors=True)
    return True


def no_queue(lived: Lived) -> bool:
    others = lived.place.top / "queues" / "others"
    if not others.is_dir() or any(others.iterdir()):
        return False
    path = lived.place.entry("delay", "others", due_in_s=60)
    lived.published(path)
    others.rmdir()
    return True


def torn(lived: Lived) -> bool:
    lived.place.ready(b"short", ",h=100")
    return True


def tombstone(lived: Lived) -> bool:
    lived.place.tombstone("orders")
    return True


def settings_of_no_queue(lived: Lived) -> bool:
    put_file(lived.place.top / "settings" / "unheard-of.json", b"{}")
    return True


def schedule(lived: Lived) -> bool:
    put_file(lived.place.top / "schedules" / "orders:nightly", b"{", due_ms=1)
    return True


def lease_without_manifest(lived: Lived) -> bool:
    if (path := lived.any_of("queues")) is None or (lived.place.top / "leases/c.1").exists():
        return False
    if "SIDELINE" in str(path):
        return False
    path.rename(lived.place.folder("leases/c.1") / f"orders:{path.name}")
    lived.place.clock.advance(HOURS_S)
    return True


def hours(lived: Lived) -> bool:
    """In which no mq-mover ran."""
    lived.place.clock.advance(HOURS_S)
    return any((lived.place.top / "delay").rglob("orders:*"))


def deleted(lived: Lived) -> bool:
    queue = QueueName("short-lived")
    if (lived.place.top / "deleted" / queue.text).exists():
        return False
    lived.place.folder(f"queues/{queue.text}")
    run_alone(delete_queue(lived.place.root, queue, new_id().uuid), NoFlusher())
    lived.place.clock.advance(HOURS_S)
    return True


DAMAGES: list[Damage] = [
    other_mode, other_time, other_bucket, second_name, second_file, no_link, link_of_another,
    second_of_a_key, symlink, in_the_way, folder_in_the_way, no_folder, no_queue, torn, tombstone,
    settings_of_no_queue, schedule, lease_without_manifest, hours, deleted,
]  # fmt: skip
