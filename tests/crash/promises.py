"""What mq's answers promise, and whether a root keeps it after a power cut.

`Ledger` reads the marks of a log up to the cut; `Found` reads a mounted root; `broken` compares
the two and says, in a line each, what was promised and is not so.
"""

import os
import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from crash.images import Mark
from harness.folders import files_below
from harness.messages import number_in

from mq.lifecycle import State
from mq.message import Stamp
from mq.names import MessageId, QueueName
from mq.store.fetch import fetch
from mq.store.files import Files
from mq.store.flush import FsyncFlusher
from mq.store.group import run_alone
from mq.store.redeliver import Timer, forget, redeliver
from mq.store.remove import remove
from mq.store.root import Root

Operation = Callable[[FsyncFlusher], object]

NEW, READY, DELAYED, REMOVED = State.NEW, State.READY, State.DELAYED, State.REMOVED


@dataclass
class Told:
    """What clients know of one message."""

    queue: str
    number: int | None = None
    published: bool = False
    receives: int = 0
    due_ms: int = 0
    delete_asked: bool = False
    deleted: bool = False
    dropped: bool = False
    """Whether its queue's deletion was asked for since."""
    lies_in: State | None = None
    """Where a daemon has moved it, flushed, and nobody has asked for it since."""

    @property
    def must_live(self) -> bool:
        return (self.published or self.receives > 0) and not (self.delete_asked or self.dropped)


@dataclass
class Ledger:
    """What clients asked for and were told until some moment; `until_ms` is its latest time."""

    messages: dict[str, Told] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    """The last mark of each queue: make_asked, made (was there), made_anew, drop_asked, dropped,
    swept (its tombstone is gone).
    """
    until_ms: int = 0

    @classmethod
    def of(cls, marks: Iterable[Mark], until_ms: int) -> "Ledger":
        ledger = cls(until_ms=until_ms)
        for mark in marks:
            ledger.note(**mark.facts)
        return ledger

    def note(self, what: str, at_ms: int, **facts: Any) -> None:
        match what:
            case "published":
                told = self._message(**facts)
                told.published, told.number = True, facts["number"]
                told.due_ms = facts.get("due_ms", 0)
            case "reschedule_asked" | "rescheduled":
                told = self._message(**facts)
                asked_ms = told.due_ms if what == "reschedule_asked" else facts["due_ms"]
                told.due_ms = min(asked_ms, facts["due_ms"])
                told.lies_in = State(facts["to"]) if "to" in facts else None
            case "fetched":
                told = self._message(**facts)
                told.receives, told.due_ms = facts["receives"], facts["due_ms"]
                told.lies_in = None
            case "moved":
                self._message(**facts).lies_in = State(facts["to"])
            case "delete_asked" | "deleted":
                told = self._message(**facts)
                told.delete_asked |= what == "delete_asked"
                told.deleted |= what == "deleted"
                told.lies_in = None
            case "fetch_asked":
                for told in self._of(facts["queue"]):
                    told.lies_in = None
            case "end" | "later":
                pass
            case _:
                self._note_queue(what, facts["queue"])

    def _note_queue(self, what: str, queue: str) -> None:
        self.queues[queue] = what
        for told in self._of(queue):
            told.dropped |= what == "drop_asked"

    def _of(self, queue: str) -> list[Told]:
        return [told for told in self.messages.values() if told.queue == queue]

    def _message(self, queue: str, id: str, **_: Any) -> Told:  # noqa: A002 - the mark's word
        return self.messages.setdefault(id, Told(queue))


@dataclass(frozen=True)
class Place:
    """One name of a message's file."""

    state: State
    queue: str
    id: str
    path: Path
    status: os.stat_result = field(repr=False)

    @property
    def stamp(self) -> Stamp:
        return Stamp.from_mtime_ns(self.status.st_mtime_ns)


class Found:
    """The messages' files in a root, by id, and its queues."""

    def __init__(self, root: Path) -> None:
        self.queues = {
            path.name for path in (root / "queues").iterdir() if not path.name.startswith(".")
        }
        self.tombstones = {path.name for path in (root / "deleted").iterdir()}
        self.places: dict[str, list[Place]] = defaultdict(list)
        for place in _places(root):
            self.places[place.id].append(place)

    def states(self, message_id: str) -> set[State]:
        return {place.state for place in self.places.get(message_id, [])}

    def ready(self, queue: str) -> list[str]:
        """The ids of the queue's ready messages."""
        return sorted(
            place.id
            for places in self.places.values()
            for place in places
            if place.state is READY and place.queue == queue
        )

    def with_two_names(self) -> list[list[Place]]:
        return [places for places in self.places.values() if len(places) > 1]


def _places(root: Path) -> Iterator[Place]:
    for queue_folder in (root / "queues").glob("*/"):
        for path in files_below(queue_folder):
            yield Place(READY, queue_folder.name, path.name, path, path.lstat())
    for state, folder in ((NEW, "new"), (DELAYED, "delay"), (REMOVED, "remove")):
        for path in files_below(root / folder):
            queue, separator, message_id = path.name.partition(":")
            if separator:
                yield Place(state, queue, message_id, path, path.lstat())


def broken(
    ledger: Ledger, found: Found, two_names_allowed: bool, new_returns: bool = False
) -> list[str]:
    """The promises that the root does not keep; none when all is well.

    `two_names_allowed`: whether a rename that was not answered may leave both of its names;
    `new_returns`: whether the name in new/ may come back although its end was flushed
    (FORMAT.md, "Two names").
    """
    return [
        *_queues(ledger, found),
        *_bodies(ledger, found),
        *_names(found, two_names_allowed),
        *(
            f"{message_id} {problem}; {told}, found {found.places.get(message_id)}"
            for message_id, told in ledger.messages.items()
            for problem in _message(ledger, told, found, message_id, new_returns)
        ),
    ]


def _queues(ledger: Ledger, found: Found) -> Iterator[str]:
    for queue, last in ledger.queues.items():
        if last in ("made", "made_anew") and queue not in found.queues:
            yield f"the queue {queue} was made and is not there"
        if last in ("dropped", "swept") and queue in found.queues:
            yield f"the queue {queue} was deleted and is there"
        if last in ("swept", "made_anew") and queue in found.tombstones:
            yield f"the tombstone of {queue} came back"


def _bodies(ledger: Ledger, found: Found) -> Iterator[str]:
    for message_id, places in found.places.items():
        for place in places:
            if place.state not in (READY, DELAYED):
                continue
            try:
                number = number_in(place.path.read_bytes())
            except (AssertionError, ValueError) as error:
                yield f"{message_id} in {place.path}: {error}"
                continue
            told = ledger.messages.get(message_id)
            if told is not None and told.number not in (None, number):
                yield f"{message_id} has the body {number}, not {told.number}"


def _names(found: Found, two_allowed: bool) -> Iterator[str]:
    for places in found.with_two_names():
        inodes = {place.status.st_ino for place in places}
        queues = {place.queue for place in places}
        if not two_allowed or len(inodes) > 1 or len(queues) > 1:
            yield f"{places[0].id} stands in {[place.path for place in places]}"


def _message(
    ledger: Ledger, told: Told, found: Found, message_id: str, new_returns: bool
) -> Iterator[str]:
    states = found.states(message_id)
    alive = states & {READY, DELAYED}
    if told.must_live:
        yield from _reached(told, found, alive)
    # btrfs was seen to bring the name in new/ back although that folder was flushed after the
    # rename; beside the ready one it does no harm, since it is never delivered.
    if told.published and NEW in states and not new_returns:
        yield "is in new/ still"
    if told.deleted and alive:
        yield "came back after its delete"
    if told.dropped and ledger.queues[told.queue] == "made_anew" and alive:
        yield "turned up in the queue that was made anew"
    if told.dropped and READY in states and ledger.queues[told.queue] == "dropped":
        yield "is ready in a queue that was deleted"
    if told.must_live and told.due_ms > ledger.until_ms:
        yield from _kept_back(told, found.places.get(message_id, []))
    if told.lies_in and states != {told.lies_in}:
        yield f"was moved to {told.lies_in.value}, and is not there alone"
    if told.lies_in is READY and any(
        place.stamp.due_ms > ledger.until_ms for place in found.places[message_id]
    ):
        yield "was put back, and is not due"
    if alive and told.receives > max(
        place.stamp.receives for place in found.places[message_id] if place.state in alive
    ):
        yield "has forgotten a receive"


def _reached(told: Told, found: Found, alive: set[State]) -> Iterator[str]:
    if not alive:
        yield "is nowhere"
    if told.queue not in found.queues:
        yield "is out of reach, without its queue"


def _kept_back(told: Told, places: list[Place]) -> Iterator[str]:
    """Of a message that is not due yet."""
    if {place.state for place in places} & {READY, DELAYED} != {DELAYED}:
        yield "is not due, and is not in delay/ alone"
    if any(place.stamp.due_ms < told.due_ms for place in places):
        yield "comes back before its time"


def unresolved(root: Root, found: Found, chance: random.Random) -> list[str]:
    """Lets the next operation come to each message of two names, which leaves one; the problems."""
    flusher = FsyncFlusher(Files(), 1)
    problems = []
    for places in found.with_two_names():
        exists = places[0].queue in found.queues
        name, operation, left = chance.choice(_next_operations(root, places, exists))
        operation(flusher)
        states = Found(Path(root.layout.root)).states(places[0].id)
        if states != {left}:
            before = [place.path for place in places]
            problems.append(f"{before}: {name} left it in {states}, not {left}")
    flusher.close()
    return problems


def _bucket(root: Root, places: list[Place], state: State) -> str:
    """Where below the state's folder the message lies."""
    place = next(place for place in places if place.state is state)
    top = root.layout.base(state, QueueName.parse(place.queue))
    below = place.path.parent.relative_to(top).as_posix()
    return "" if below == "." else f"{below}/"


def _next_operations(
    root: Root, places: list[Place], queue_exists: bool
) -> list[tuple[str, Operation, State]]:
    """What may come to the message next, and where it is then."""
    states = {place.state for place in places}
    queue, message_id = QueueName.parse(places[0].queue), MessageId.parse(places[0].id)
    latest = next(state for state in (REMOVED, DELAYED, READY) if state in states)
    operations: list[tuple[str, Operation, State]] = []
    if NEW in states:
        forgotten = partial(forget, root, queue, message_id, 0)
        operations.append(("forget", lambda flusher: forgotten(), latest))
    if queue_exists and states & {READY, DELAYED}:
        operations.append(("remove", partial(run_alone, remove(root, queue, message_id)), REMOVED))
    if READY in states:
        claim = fetch(root, queue, message_id, 60, _bucket(root, places, READY))
        operations.append(("fetch", partial(run_alone, claim), DELAYED))
    if DELAYED in states:
        bucket = _bucket(root, places, DELAYED)
        again = redeliver(root, queue, message_id, Timer(lain_s=0), bucket)
        left = READY if queue_exists else REMOVED
        operations.append(("redeliver", partial(run_alone, again), left))
    return operations
