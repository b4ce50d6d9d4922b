"""Every call of what no request asks for fails once: release, redelivery, retiring, forgetting,
sweeping, reaping, start-up. The next try does it; a message is in one place, whole, all the while.
"""

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness.audits import assert_audits_clean, looked_at
from harness.clock import FakeClock
from harness.faults import FaultyFiles, each_disk_error
from harness.folders import leased_files, message_files
from harness.messages import new_id, put_file
from harness.upkeep import all_policies, work_of

from mq.model.errors import MqError
from mq.model.names import ConsumerName, MessageId, QueueName
from mq.model.settings import QueueSettings
from mq.model.shovel import ALL
from mq.store.core.root import Root
from mq.store.disk.flush import FsyncFlusher, NoFlusher, SyncfsFlusher
from mq.store.disk.group import run_alone
from mq.store.format.pipeline import LeaseName
from mq.store.leases.lease import acknowledge, claim, finish_claim
from mq.store.opening import open_root
from mq.store.operations.fetch import fetch
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.operations.reap import reap
from mq.store.operations.redeliver import Timer
from mq.store.operations.release import release_many
from mq.store.settings.configure import change_settings
from mq.store.shovel.shovel import Aim, Pass, shovel_many
from mq_mover.lapses import LeaseMover
from mq_mover.mover import Mover
from mq_mover.policies.expiry import MessageExpiry
from mq_mover.policy import Policies

CALLS_MAX = 400
QUEUE = QueueName.parse("orders")
CONSUMER = ConsumerName.parse("etl")
BODY = b"the body"
HOUR_S = 3600


@dataclass
class Place:
    """A root with a queue, and what works on it: by the faulty files, or by real ones."""

    path: Path
    root: Root
    clock: FakeClock
    flusher: Any
    message_id: MessageId

    @property
    def real(self) -> Root:
        return looked_at(self.path, self.clock)

    def put(self, state: str, due_in_s: float = 0, receives: int = 1) -> None:
        due_ms = self.clock.now_ms() + round(due_in_s * 1000)
        name = f"{QUEUE.text}:{self.message_id.text}"
        put_file(self.path / state / name, BODY, due_ms, receives)


Work = Callable[[], object]


def releasing(place: Place) -> Work:
    put_file(place.path / "queues" / QUEUE.text / place.message_id.text, BODY, 1, 0)
    delivery = run_alone(fetch(place.real, QUEUE, place.message_id, 30), NoFlusher())
    assert delivery is not None
    return lambda: run_alone(
        release_many(place.root, QUEUE, [delivery], unhandled=True), place.flusher
    )


def redelivering(place: Place) -> Work:
    place.put("delay")
    return lambda: moved(place)


def _limit(place: Place) -> None:
    """One delivery at most, which is known already: else a call that fails would hide it."""
    settings = place.path / "settings" / f"{QUEUE.text}.json"
    settings.write_text('{"max_receives": 1}')
    settings.chmod(0o600)
    assert place.root.facts.settings(QUEUE).max_receives == 1


def sidelining(place: Place) -> Work:
    run_alone(create_queue(place.real, QUEUE.sideline()), NoFlusher())
    return sidelining_the_first(place)


def sidelining_the_first(place: Place) -> Work:
    place.put("delay")
    _limit(place)
    return lambda: moved(place)


def retiring(place: Place) -> Work:
    place.put("delay")
    run_alone(delete_queue(place.real, QUEUE, new_id().text), NoFlusher())
    return lambda: moved(place)


def sweeping_deleted(place: Place) -> Work:
    place.put("delay", due_in_s=60)
    run_alone(delete_queue(place.real, QUEUE, new_id().text), NoFlusher())
    return lambda: all_policies(place.root, place.flusher).run_once()


def forgetting(place: Place) -> Work:
    place.put("new")
    place.clock.advance(2 * HOUR_S)
    return lambda: all_policies(place.root, place.flusher).run_once()


def reaping(place: Place) -> Work:
    place.put("remove")
    folder = place.path / "remove" / f"{QUEUE.text}:{new_id().text}.d"
    folder.mkdir(mode=0o700)
    put_file(folder / new_id().text, BODY, 1)
    later_ms = place.clock.now_ms() + 10_000
    return lambda: reap(place.root.files, f"{place.path}/remove", later_ms, 0)


def _link(place: Place, kind: str, target: str) -> Path:
    """The link of a key `night`."""
    of_kind = place.path / "queues" / QUEUE.text / f".{kind}"
    folder = of_kind / hashlib.sha256(b"night").hexdigest()[:2]
    for each in (of_kind, folder):
        each.mkdir(mode=0o700)
    link = folder / "night"
    link.symlink_to(target)
    return link


def forgetting_once(place: Place) -> Work:
    """While its idempotency key stands, the file does."""
    link = _link(place, "idempotency", place.message_id.text)
    place.put("new")
    place.clock.advance(2 * HOUR_S)

    def forget() -> None:
        all_policies(place.root, place.flusher).run_once()
        assert states_of(place) == ["new"] or not os.path.lexists(link)

    return forget


def reaping_keyed(place: Place) -> Work:
    place.message_id = MessageId.parse(f"{place.message_id.text},k=night")
    _link(place, "keys", place.message_id.text)
    place.put("remove")
    later_ms = place.clock.now_ms() + 10_000
    removed = f"{place.path}/remove"
    return lambda: reap(place.root.files, removed, later_ms, 0, root=place.root)


def _configured(place: Place, **fields: object) -> None:
    """The settings of the queue, by another process."""
    run_alone(change_settings(place.real, QUEUE, fields, QueueSettings()), NoFlusher())


def expiring(place: Place, expired_to: str = "remove") -> Work:
    _configured(place, message_ttl_s=60, expired_to=expired_to)
    put_file(place.path / "queues" / QUEUE.text / place.message_id.text, BODY, 1, 0)
    place.clock.advance(HOUR_S)
    return lambda: _expire(place)


def expiring_to_the_sideline(place: Place) -> Work:
    """Which is not there yet."""
    return expiring(place, "sideline")


def expiring_when_due(place: Place) -> Work:
    _configured(place, message_ttl_s=60)
    place.clock.advance(HOUR_S)
    place.put("delay")

    def move_and_expire() -> None:
        # Where its settings could not be read it is brought back, and goes from there.
        moved(place)
        _expire(place)

    return move_and_expire


def _expire(place: Place) -> None:
    """Once what is known of the settings is looked at again."""
    place.clock.advance(1)
    work = work_of(place.root, place.flusher)
    Policies(place.root, [MessageExpiry(work)]).run_once()


def sweeping_keys(place: Place) -> Work:
    place.message_id = MessageId.parse(f"{place.message_id.text},k=night")
    _link(place, "keys", place.message_id.text)
    place.put("remove")
    place.clock.advance(2 * HOUR_S)
    return lambda: all_policies(place.root, place.flusher).run_once()


def _leased(place: Place, key: str = "") -> LeaseName:
    """The message, once it was claimed."""
    if key:
        place.message_id = MessageId.parse(f"{place.message_id.text},k={key}")
        _link(place, "keys", place.message_id.text)
    put_file(place.path / "queues" / QUEUE.text / place.message_id.text, BODY, 1, 0)
    lease = run_alone(claim(place.real, CONSUMER, [QUEUE], 9, 60), NoFlusher())
    assert lease is not None
    return lease.name


def claiming(place: Place) -> Work:
    put_file(place.path / "queues" / QUEUE.text / place.message_id.text, BODY, 1, 0)
    return lambda: run_alone(claim(place.root, CONSUMER, [QUEUE], 9, 60), place.flusher)


def finishing_a_claim(place: Place) -> Work:
    lease = _leased(place)
    (place.path / "leases" / f"{lease.text}.json").write_bytes(b"")
    return lambda: run_alone(finish_claim(place.root, lease), place.flusher)


def acknowledging(place: Place) -> Work:
    lease = _leased(place)
    return lambda: run_alone(acknowledge(place.root, lease), place.flusher)


def giving_back(place: Place) -> Work:
    _leased(place)
    place.clock.advance(100)
    return lambda: LeaseMover(place.root, place.flusher).run_once()


def giving_back_the_last_time(place: Place) -> Work:
    _limit(place)
    return giving_back(place)


def reaping_a_lease(place: Place) -> Work:
    lease = _leased(place, key="night")
    run_alone(acknowledge(place.real, lease), NoFlusher())
    later_ms = place.clock.now_ms() + 10_000
    removed = f"{place.path}/remove"

    def passes() -> None:
        for _ in range(2):
            reap(place.root.files, removed, later_ms, 0, root=place.root)

    return passes


def _sidelined(place: Place) -> Path:
    run_alone(create_queue(place.real, QUEUE.sideline()), NoFlusher())
    path = place.path / "queues" / QUEUE.sideline().text / place.message_id.text
    return put_file(path, BODY, place.clock.now_ms(), 1)


def _shovel(place: Place) -> None:
    """One pass."""
    at = Pass(place.root, Aim(QUEUE, ALL, place.root.now_ms()))
    while (batch := at.batch(10)) is not None:
        if (
            error := shovel_many(place.root, place.flusher, at.aim, batch.candidates).error
        ) is not None:
            raise error


def shovelling(place: Place) -> Work:
    _sidelined(place)
    return lambda: _shovel(place)


def shovelling_keyed(place: Place) -> Work:
    """Another that had its key has died since; one link says so still."""
    other = new_id().text
    place.message_id = MessageId.parse(f"{place.message_id.text},k=night")
    link = _link(place, "keys", f"{other},k=night")
    _sidelined(place)

    def shovel() -> None:
        _shovel(place)
        is_back = (place.path / "queues" / QUEUE.text / place.message_id.text).exists()
        assert not is_back or os.readlink(link) == place.message_id.text

    return shovel


def starting(place: Place) -> Work:
    place.put("delay", due_in_s=60)
    return lambda: open_root(str(place.path), place.root.files, place.clock)


def starting_anew(place: Place) -> Work:
    """On a root that is not there yet."""
    below = place.path / "delay" / ".below" / "root"
    return lambda: open_root(str(below), place.root.files, place.clock)


def moved(place: Place) -> None:
    """What a mover does with the message: it looks, waits for the second look, and moves it."""
    mover = Mover(place.root, place.flusher, Timer())
    mover.run_once()
    place.clock.advance(1.5)
    mover.run_once()


@dataclass(frozen=True)
class Upkeep:
    """Some work, and where the message is before it and when it was done; and where it may be
    `between`, once a call has failed.
    """

    begin: Callable[[Place], Work]
    before: str | None
    after: str | None
    between: tuple[str | None, ...] = ()


EXPUNGED = (None,)
"""By an unlink, where remove/ has no room for a name."""
UPKEEP = {
    "release": Upkeep(releasing, "delay", "queues"),
    "redeliver": Upkeep(redelivering, "delay", "queues"),
    "sideline": Upkeep(sidelining, "delay", "sideline"),
    "sideline-the-first": Upkeep(sidelining_the_first, "delay", "sideline"),
    "retire": Upkeep(retiring, "delay", "remove"),
    "sweep-deleted": Upkeep(sweeping_deleted, "delay", "remove"),
    "forget": Upkeep(forgetting, "new", "remove"),
    "forget-once": Upkeep(forgetting_once, "new", "remove"),
    "reap": Upkeep(reaping, "remove", None),
    "reap-keyed": Upkeep(reaping_keyed, "remove", None),
    "expire": Upkeep(expiring, "queues", "remove", EXPUNGED),
    "expire-to-the-sideline": Upkeep(expiring_to_the_sideline, "queues", "sideline"),
    "expire-when-due": Upkeep(expiring_when_due, "delay", "remove", ("queues", *EXPUNGED)),
    "sweep-keys": Upkeep(sweeping_keys, "remove", "remove"),
    "claim": Upkeep(claiming, "queues", "leases"),
    "finish-claim": Upkeep(finishing_a_claim, "leases", "leases"),
    "acknowledge": Upkeep(acknowledging, "leases", "remove"),
    "give-back": Upkeep(giving_back, "leases", "queues"),
    "shovel": Upkeep(shovelling, "sideline", "queues"),
    "shovel-keyed": Upkeep(shovelling_keyed, "sideline", "queues"),
    "give-back-the-last-time": Upkeep(giving_back_the_last_time, "leases", "delay"),
    "reap-lease": Upkeep(reaping_a_lease, "remove", None),
    "start": Upkeep(starting, "delay", "delay"),
    "start-anew": Upkeep(starting_anew, None, None),
}


def states_of(place: Place) -> list[str | None]:
    name = f"{QUEUE.text}:{place.message_id.text}"
    found = message_files(place.path) | {"leases": leased_files(place.path)}
    sideline = f"{QUEUE.sideline().text}:{place.message_id.text}"
    found["sideline"] = [name] if sideline in found["queues"] else []
    return [state for state, names in found.items() if name in names] or [None]


def tried(work: Work) -> bool:
    """Whether the work says that it was done; what it may raise is what the daemons catch."""
    try:
        work()
    except (OSError, MqError):
        return False
    return True


@each_disk_error()
@pytest.mark.parametrize("name", UPKEEP)
def test_every_call_of_upkeep_may_fail(
    tmp_path: Path, name: str, codes: Sequence[int], commit: str
) -> None:
    upkeep = UPKEEP[name]
    for after in range(CALLS_MAX):
        path, clock, files = tmp_path / str(after), FakeClock(), FaultyFiles()
        root = open_root(str(path), files, clock)
        run_alone(create_queue(looked_at(path), QUEUE), NoFlusher())
        flusher = FsyncFlusher(files, 1) if commit == "fsync" else SyncfsFlusher(files, str(path))
        place = Place(path, root, clock, flusher, new_id())
        work = upkeep.begin(place)
        fault = files.fail("", codes[after % len(codes)], times=1, after=after)
        tried(work)
        files.heal()
        said = f"{fault} left it in {states_of(place)}"
        assert states_of(place)[1:] == [], said
        assert states_of(place)[0] in (upkeep.before, *upkeep.between, upkeep.after), said
        assert files.retried == [], said
        assert files.open_paths() == [], said
        assert_audits_clean(path)
        # The next try does it, or finds it done.
        assert tried(work), said
        place.clock.advance(HOUR_S)
        if name != "release":
            # A release is not tried again: its message comes back when it is due.
            ends = [upkeep.after, *(EXPUNGED if None in upkeep.between else ())]
            assert states_of(place) in ([end] for end in ends), said
        flusher.close()
        if not fault.hits:
            assert states_of(place) == [upkeep.after]
            return
    raise AssertionError("work without an end")
