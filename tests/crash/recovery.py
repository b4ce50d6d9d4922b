"""A root after a power cut: started on, used, and given time, it comes to hold what it must.

Everything runs in this process, on any file system, as the daemons do it: start-up, then requests,
then mq-mover's and mq-reaper's passes, hours later.
"""

import random
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from pathlib import Path

from crash.archived import stored_and_reaped, unkept
from crash.promises import ALIVE, Found, Ledger, broken, queues_of, schedules_of  # fmt: skip
from harness.audits import Audit, audit
from harness.checking import checked
from harness.clock import FakeClock
from harness.messages import check_headers, number_in
from harness.upkeep import all_policies

from mq.model.errors import GroupHeld, KeyTaken, MqError
from mq.model.lifecycle import State
from mq.model.names import Key, MessageId, QueueName, ScheduleName, UuidSource
from mq.store.audit.findings import Breach
from mq.store.bulk.roll_forward import roll_all_forward
from mq.store.core.root import Root
from mq.store.core.unserved import mark_of
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.disk.steps import Steps, T
from mq.store.format.layout import FORMAT_LINE, OLD_FORMAT_LINES, Layout, Place
from mq.store.format.packs import tries
from mq.store.opening import open_root, root_of
from mq.store.operations.fetch import fetch
from mq.store.operations.publish import Draft, publish
from mq.store.operations.queues import create_queue
from mq.store.operations.reap import reap
from mq.store.operations.redeliver import Timer
from mq.store.operations.remove import remove
from mq.store.packs.parting import part
from mq.store.packs.rolling import roll_all_on
from mq.store.scan.order import list_ready
from mq.store.schedules.schedules import list_schedules, read_schedule
from mq.store.upgrade import upgrade
from mq.tools.fsck.checking import Doing
from mq.tools.fsck.report import Outcome
from mq_mover.lapses import LeaseMover
from mq_mover.mover import Mover
from mq_mover.policy import Policies
from mq_mover.scheduler import Scheduler

VISIBILITY_S = 60.0
_NEVER_S = 1e9
_HOURS_S = 2 * 3600.0
_ASKED = ("make_asked", "drop_asked")
FIRES_EVERY_S = 120.0
"""How often the schedules of scripts fire."""


def recovered(top: Path, ledger: Ledger, seed: int) -> list[str]:
    """What is broken in the root at `top`, which is used up."""
    answered = any(last in ("made", "made_anew") for last in ledger.queues.values())
    try:
        line = (top / "format").read_text() if answered else FORMAT_LINE
        if line not in (FORMAT_LINE, *OLD_FORMAT_LINES):
            return ["clients were answered, and its format is not written"]
        return _Recovery(top, ledger, random.Random(seed)).problems()
    except (MqError, OSError, AssertionError, ValueError) as error:
        return [f"it does not go on: {error!r}"]


class _Recovery:
    def __init__(self, top: Path, ledger: Ledger, chance: random.Random) -> None:
        self._top = top
        self._ledger = ledger
        self._chance = chance
        self._clock = FakeClock()
        self._clock.set_ms(ledger.until_ms)
        self._flusher = NoFlusher()
        line = top / "format"
        if line.exists() and line.read_text() in OLD_FORMAT_LINES:
            upgrade(root_of(Layout.of(top), Files(), self._clock), self._flusher)
        self._root: Root = open_root(str(top), Files(), self._clock)
        if ledger.is_broken:
            assert checked(self._root, Doing.REPAIR).outcome is not Outcome.BROKEN
        # As an mq does before it serves, and beside that.
        if self._chance.random() < 0.5:
            roll_all_on(self._root)
        roll_all_forward(self._root)
        self._uuids = UuidSource(self._clock)
        self._delivered: set[str] = set()
        self._fired: dict[int, set[str]] = defaultdict(set)
        """The messages of each number that were delivered, or taken away on purpose."""

    def problems(self) -> list[str]:
        """The first stage's problems, where there are any: later ones follow from them."""
        for stage in (self._keeps, self._serves, self._settles):
            if problems := stage():
                return problems
        return []

    def _keeps(self) -> list[str]:
        """What stands right after start-up."""
        found = Found(self._top)
        problems = broken(self._ledger, found)
        problems += unkept(self._root, self._ledger)
        problems += _breaches(audit(self._root, _NEVER_S), self._may_be)
        if not problems and self._chance.random() < 0.5:
            # For what depends on ctimes, which are of this moment.
            self._clock.set_ms(max(self._ledger.until_ms, FakeClock().now_ms()) + 1000)
        return problems

    def _may_be(self, breach: Breach, name: str) -> bool:
        """What a crash may leave for a while."""
        if breach in (Breach.LINKED, Breach.TWO_STATES):
            return False
        if breach in (Breach.SETTINGS, Breach.PURGED):
            last = self._ledger.queues.get(name.removesuffix(".json"))
            return last in (None, *_ASKED)
        if breach is Breach.SCHEDULE:
            return self._ledger.queues.get(name.partition(":")[0]) in (None, *_ASKED)
        return breach is Breach.TOMBSTONE and self._ledger.queues.get(name) == "drop_asked"

    def _serves(self) -> list[str]:
        """Every queue at once: publish, fetch, delete; a queue that is gone is made, empty."""
        problems = []
        for name in sorted(self._ledger.queues):
            queue = QueueName.parse(name)
            made = self._run(create_queue(self._root, queue))
            if made and (ready := self._ready(queue)):
                problems.append(f"{ready} turned up in {queue} as it was made")
            if made and (schedules := list_schedules(self._root, queue)):
                problems.append(f"{schedules} turned up in {queue} as it was made")
            problems += self._serves_keys(queue, made)
            before = self._ready(queue)
            if (mark := mark_of(self._root, queue)) is not None:
                self._uuids.go_past(mark.ms)
            message_id = MessageId(self._uuids.next())
            draft = Draft(queue, message_id, message_id.published_ms)
            self._run(publish(self._root, draft, b"after the cut"))
            if self._ready(queue) != sorted([*before, message_id], key=lambda each: each.text):
                problems.append(f"{message_id} was published, and is not ready alone beside others")
            problems += self._drain(queue, limit=1)
        if self._ledger.keys or self._ledger.idempotent:
            problems += _breaches(audit(self._root, _NEVER_S), self._may_be)
        return problems

    def _serves_keys(self, queue: QueueName, made: bool) -> list[str]:
        """Every key of the queue: its message lives, or another gets it. Every idempotency key:
        what was published with it is answered, and lives.
        """
        problems = []
        for key in sorted(key for of, key in self._ledger.keys if of == queue.text):
            before = Found(self._top)
            try:
                said = self._publish(queue, key=Key.parse(key))
            except KeyTaken as error:
                said = error.id
            alive = Found(self._top).states(said) & set(ALIVE)
            if not alive or (made and said in before.places):
                problems.append(f"{said} has the key {key}, and was {before.places.get(said)}")
        for (of, key), told_id in sorted(self._ledger.idempotent.items()):
            if of != queue.text:
                continue
            before = Found(self._top)
            said = self._publish(queue, idempotency=Key.parse(key))
            told = self._ledger.messages.get(said)
            alive = Found(self._top).states(said) & set(ALIVE)
            if told_id not in (None, said) or (made and said in before.places):
                problems.append(f"{said} is answered for {key}, not {told_id}; {told}")
            may_be_gone = told is not None and told.delete_asked
            if not alive and not may_be_gone:
                problems.append(f"{said} is answered for {key}, and does not live; {told}")
        return problems

    def _publish(
        self, queue: QueueName, key: Key | None = None, idempotency: Key | None = None
    ) -> str:
        message_id = MessageId(self._uuids.next(), key=key)
        draft = Draft(
            queue, message_id, message_id.published_ms, idempotency=idempotency,
            idempotency_s=1e9,
        )  # fmt: skip
        return self._run(publish(self._root, draft, b"after the cut")).text

    def _settles(self) -> list[str]:
        """Hours later all that lives was delivered, and nothing else is left."""
        roll_all_on(self._root)
        self._clock.advance(_HOURS_S)
        mover = Mover(self._root, self._flusher, Timer())
        leases = LeaseMover(self._root, self._flusher)
        sweeper = all_policies(self._root, self._flusher)
        scheduler = Scheduler(self._root, self._flusher)
        problems: list[str] = []
        fires_first = self._chance.random() < 0.5
        for _ in range(2 + max(self._ledger.firings.values(), default=0)):
            mover.run_once()
            leases.run_once()
            if fires_first:
                scheduler.run_once()
            sweeper.run_once()
            scheduler.run_once()
            self._clock.advance(FIRES_EVERY_S)
            if self._ledger.firings:  # Whose messages may have one key.
                problems += self._drain_all()
        problems += self._drain_all()
        removed = self._root.layout.remove
        problems += stored_and_reaped(self._root, self._flusher, self._ledger)
        reap(self._root.files, removed, self._clock.now_ms(), 0, root=self._root)
        # What the sweeper does beside its passes, in a thread of its own, is at its end by then.
        roll_all_forward(self._root)
        problems += self._parts_nothing(sweeper)
        end = audit(self._root)
        problems += _breaches(end, lambda breach, name: False)
        if any(end.messages.values()):
            problems.append(f"what stays for ever: {end.messages}")
        for message_id, told in self._ledger.messages.items():
            if told.must_live and message_id not in self._delivered:
                problems.append(f"{message_id} was never delivered; {told}")
            gone = (
                told.deleted
                or told.purged
                or (told.dropped and self._ledger.queues[told.queue] in ("dropped", "made_anew"))
            )
            if gone and message_id in self._delivered:
                problems.append(f"{message_id} was delivered after its delete; {told}")
        return [*problems, *self._misfired()]

    def _parts_nothing(self, sweeper: Policies) -> Iterator[str]:
        """What did not end of partings is given up, and gone after another hour."""
        for _ in range(2):
            if any(tries(self._root.layout, self._root.files)):
                self._clock.advance(_HOURS_S)
                sweeper.run_once()
        for each in tries(self._root.layout, self._root.files):
            yield f"a parting is left: {each.name}"

    def _misfired(self) -> Iterator[str]:
        """A schedule publishes as many messages as it says, whatever was cut off; one that was
        replaced or taken away since, no more than that.
        """
        for number, count in self._ledger.firings.items():
            by_clients = {
                message_id
                for message_id, told in self._ledger.messages.items()
                if told.number == number and told.delete_asked
            }
            published = len(self._fired[number] | by_clients)
            stays = any(allowed == {number} for allowed in self._ledger.schedules.values())
            if published > count or (stays and published < count):
                yield f"a schedule of {count} messages has published {published}"
        for (queue, name), number in schedules_of(self._top).items():
            armed = read_schedule(self._root, QueueName(queue), ScheduleName(name))
            if armed.next_ms is not None or armed.fired != self._ledger.firings[number]:
                yield f"the schedule {name} has not ended: {armed}"

    def _drain_all(self) -> list[str]:
        queues = sorted(queues_of(self._top))
        return [problem for name in queues for problem in self._drain(QueueName.parse(name))]

    def _drain(self, queue: QueueName, limit: int = 1000) -> list[str]:
        """Fetches and deletes the first ready messages; torn ones are problems."""
        problems = []
        waiting = deque(self._ready(queue)[:limit])
        held: set[MessageId] = set()
        while waiting:
            message_id = waiting.popleft()
            if message_id.items:
                waiting.extendleft(reversed(self._parted(queue, message_id)))
                continue
            try:
                delivery = self._run(fetch(self._root, queue, message_id, VISIBILITY_S))
            except GroupHeld as error:
                # It has its turn once the other was delivered, where that is ready.
                if message_id not in held and error.head in [each.text for each in waiting]:
                    waiting.append(message_id)
                held.add(message_id)
                continue
            if delivery is None or not self._run(remove(self._root, queue, message_id)):
                problems.append(f"{message_id} is ready, and was not fetched and deleted")
                continue
            self._delivered.add(message_id.text)
            body = delivery.body
            if delivery.descriptor is not None:
                body = self._root.files.read(delivery.descriptor, delivery.size, delivery.offset)
                self._root.files.close(delivery.descriptor)
            if body is not None and body != b"after the cut":
                number = number_in(body)
                self._fired[number].add(message_id.text)
                if message_id.header_bytes:
                    check_headers(delivery.headers, number)
        return problems

    def _parted(self, queue: QueueName, pack: MessageId) -> list[MessageId]:
        for spot in self._root.places.spots(State.READY, queue, pack):
            place = Place(State.READY, queue, pack, spot)
            if (items := self._run(part(self._root, place))) is not None:
                return items
        return []

    def _ready(self, queue: QueueName) -> list[MessageId]:
        listing = list_ready(self._root, queue, 1000)
        assert listing is not None
        return listing.ids

    def _run(self, operation: Steps[T]) -> T:
        return run_alone(operation, self._flusher)


def _breaches(found: Audit, may_be: Callable[[Breach, str], bool]) -> list[str]:
    return [
        f"{violation.breach.value}: {violation.path} {violation.detail}"
        for violation in found.violations
        if not may_be(violation.breach, Path(violation.path).name)
    ]
