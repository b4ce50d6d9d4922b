"""What mq's answers promise, and whether a root keeps it after a power cut.

`Ledger` reads the marks of a log up to the cut; `Found` reads a mounted root; `broken` compares
the two and says, in a line each, what was promised and is not so.
"""

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from crash.images import Mark
from harness.folders import files_below
from harness.messages import number_in, number_in_file

from mq.model.clock import SystemClock
from mq.model.errors import MqError
from mq.model.lifecycle import State
from mq.model.limits import SIDELINE_SUFFIX
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.model.packs import bodies_in
from mq.model.totals import Total
from mq.store.disk.files import Files
from mq.store.disk.flush import FsyncFlusher
from mq.store.format.layout import Layout
from mq.store.format.packs import parse_try
from mq.store.opening import root_of
from mq.store.totals.ledger import Ledger as TotalsLedger

Operation = Callable[[FsyncFlusher], object]
_Next = tuple[str, Operation, State]

NEW, READY, DELAYED, REMOVED = State.NEW, State.READY, State.DELAYED, State.REMOVED
LEASED = State.LEASED
ALIVE = (READY, DELAYED, LEASED)
PARTS = ".parts"


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
    purge_asked: bool = False
    purged: bool = False
    lies_in: State | None = None
    """Where a daemon has moved it, flushed, and nobody has asked for it since."""
    is_timeless: bool = False
    """Whether it is not promised that it is due there."""
    crossed: bool = False
    """Whether `queue` is the sideline that it was moved to, or where it was taken back to."""

    @property
    def must_live(self) -> bool:
        return (self.published or self.receives > 0) and not (
            self.delete_asked or self.dropped or self.purge_asked
        )


@dataclass
class Ledger:
    """What clients asked for and were told until some moment; `until_ms` is its latest time."""

    messages: dict[str, Told] = field(default_factory=dict)
    queues: dict[str, str] = field(default_factory=dict)
    """The last mark of each queue: make_asked, made (was there), made_anew, drop_asked, dropped."""
    visibility_s: dict[str, set[float | None]] = field(default_factory=dict)
    """What the settings of each queue may say: what was answered last, what was asked since."""
    schedules: dict[tuple[str, str], set[int | None]] = field(default_factory=dict)
    """What each queue's schedules may say, by the numbers of their bodies; None: that there is
    none. What was answered last, what was asked since.
    """
    firings: dict[int, int] = field(default_factory=dict)
    """How many messages a schedule of a body publishes in its life, by the body's number."""
    until_ms: int = 0
    keys: set[tuple[str, str]] = field(default_factory=set)
    """Each queue's keys that publishes asked for."""
    idempotent: dict[tuple[str, str], str | None] = field(default_factory=dict)
    """Each queue's idempotency keys, and the messages that were told of; None: none was yet."""
    is_broken: bool = False
    """Whether a hand has broken something: fsck puts it right, after the cut at the latest."""
    bulks: list[list[str]] = field(default_factory=list)
    """The messages of bulk publishes, each of which is published as a whole."""
    is_archive_enabled: bool = False
    archived: dict[int, set[str]] = field(default_factory=dict)
    """The messages of each batch that an archive has on stable media."""

    failures: dict[str, list[str]] = field(default_factory=dict)
    """By message: what its consumers said and were answered."""
    counted: Counter[str] = field(default_factory=Counter)
    """By queue: messages that were to be counted."""
    folded: Counter[str] = field(default_factory=Counter)
    """By queue: messages whose count was folded."""

    @classmethod
    def of(cls, marks: Iterable[Mark], until_ms: int) -> "Ledger":
        ledger = cls(until_ms=until_ms)
        for mark in marks:
            ledger.note(**mark.facts)
        return ledger

    def archived_ids(self) -> set[str]:
        """All that an archive has."""
        return {each for ids in self.archived.values() for each in ids}

    def note(self, what: str, at_ms: int, **facts: Any) -> None:
        match what:
            case "published" | "taken":
                self._note_published(**facts)
            case "publish_asked":
                self._note_keys(**facts)
            case "reschedule_asked" | "rescheduled":
                self._note_rescheduled(what, **facts)
            case "fetched" | "moved":
                self._note_moved(what, **facts)
            case "delete_asked" | "deleted":
                told = self._message(**facts)
                told.delete_asked |= what == "delete_asked"
                told.deleted |= what == "deleted"
                told.lies_in = None
            case "lease_asked" | "leased" | "return_asked" | "returned" | "end_asked" | "ended":
                self._note_lease(what, **facts)
            case "sideline_asked" | "sidelined" | "shovel_asked" | "shovelled":
                note = self._note_sideline if "sideline" in what else self._note_shovel
                note(what, **facts)
            case "fetch_asked" | "purge_asked" | "purged" | "configure_asked" | "configured":
                self._note_change(what, **facts)
            case "schedule_asked" | "schedule_told":
                self._note_schedule(what, **facts)
            case _:
                self._note_other(what, **facts)

    def _note_other(self, what: str, **facts: Any) -> None:
        if what == "bulk_asked":
            self.bulks.append(facts["ids"])
        elif what == "broken":
            self.is_broken = True
        elif what == "failed":
            self.failures.setdefault(facts["id"], []).append(facts["said"])
        elif what == "count_asked":
            self.counted[facts["queue"]] += 1
        elif what == "folded":
            self.folded[facts["queue"]] = facts["count"]
        elif what == "archived":
            self.archived[facts["seq"]] = set(facts["ids"])
        elif what.startswith("archive_"):
            self.is_archive_enabled = what == "archive_enabled"
        elif what not in ("end", "later", "known"):
            self._note_queue(what, facts["queue"])

    def _note_published(self, idempotency: str = "", **facts: Any) -> None:
        told = self._message(**facts)
        told.published, told.number = True, facts.get("number", told.number)
        told.due_ms = facts.get("due_ms", told.due_ms)
        if idempotency:
            self.idempotent[facts["queue"], idempotency] = facts["id"]

    def _note_moved(self, what: str, **facts: Any) -> None:
        told = self._message(**facts)
        if what == "moved":
            told.lies_in, told.is_timeless = State(facts["to"]), facts.get("is_timeless", False)
            told.due_ms = 0 if told.is_timeless else told.due_ms
        else:
            told.receives, told.due_ms, told.lies_in = facts["receives"], facts["due_ms"], None

    def _note_rescheduled(self, what: str, due_ms: int, to: str = "", **facts: Any) -> None:
        told = self._message(**facts)
        told.due_ms = min(told.due_ms, due_ms) if what == "reschedule_asked" else due_ms
        told.lies_in = State(to) if to else None

    def _note_sideline(
        self, what: str, queue: str, is_timeless: bool = False, into: str = "", **facts: Any
    ) -> None:
        """It is due once it was asked for, wherever it is; and the sideline is there once that was
        answered, whoever made it.
        """
        told, into = self._message(queue, **facts), into or f"{queue}{SIDELINE_SUFFIX}"
        told.due_ms, told.lies_in, told.is_timeless = 0, None, is_timeless
        self.queues.setdefault(into, "make_asked")
        if what == "sidelined":
            self.queues[into] = "made"
            told.queue, told.crossed, told.lies_in = into, True, READY
        elif told.queue == queue:
            told.crossed = False

    def _note_shovel(self, what: str, queue: str, is_timeless: bool = False, **facts: Any) -> None:
        """Back to the queue; where that was not answered, it may be in either."""
        told = self._message(queue, **facts)
        told.due_ms, told.lies_in, told.crossed, told.is_timeless = 0, None, False, is_timeless
        if what == "shovelled":
            told.queue, told.crossed, told.lies_in = queue, True, READY

    def _note_lease(self, what: str, queue: str, ids: Iterable[str]) -> None:
        """Of a lease as a whole: "end" is that it is acknowledged."""
        for told in (self._message(queue, each) for each in ids):
            told.lies_in = {"leased": LEASED, "returned": READY}.get(what)
            told.delete_asked |= what == "end_asked"
            told.deleted |= what == "ended"

    def _note_keys(self, queue: str, key: str, idempotency: str) -> None:
        if key:
            self.keys.add((queue, key))
        if idempotency:
            self.idempotent.setdefault((queue, idempotency), None)

    def _note_change(self, what: str, queue: str, visibility_s: float | None = None) -> None:
        """Of a queue that stays; `visibility_s` is what its settings are to say."""
        if what == "configured":
            self.visibility_s[queue] = {visibility_s}
        if what == "configure_asked":
            self.visibility_s.setdefault(queue, {None}).add(visibility_s)
        for told in self._of(queue):
            if what in ("fetch_asked", "purge_asked"):
                told.lies_in = None
            told.purge_asked |= what == "purge_asked"
            told.purged |= what == "purged" and told.purge_asked

    def _note_schedule(
        self, what: str, queue: str, name: str, number: int | None, count: int = 0
    ) -> None:
        allowed = self.schedules.setdefault((queue, name), {None})
        if what == "schedule_told":
            allowed.clear()
        allowed.add(number)
        if number is not None:
            self.firings[number] = count

    def _note_queue(self, what: str, queue: str) -> None:
        self.queues[queue] = what
        for (of, _), allowed in self.schedules.items():
            if of == queue and what in ("drop_asked", "dropped", "made_anew"):
                if what != "drop_asked":
                    allowed.clear()
                allowed.add(None)
        if what in ("made_anew", "drop_asked"):
            self.visibility_s.pop(queue, None)
        for told in self._of(queue):
            told.dropped |= what == "drop_asked"
            told.lies_in = None if told.dropped else told.lies_in
        for of, key in self.idempotent:
            if of == queue and what == "drop_asked":
                self.idempotent[of, key] = None

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
    pack: str = ""
    """The id of the pack whose file it is, of a message that is in one."""

    @property
    def file_id(self) -> MessageId:
        """By which operations take the file."""
        return MessageId.parse(self.pack or self.id)

    def content(self) -> bytes:
        """The message's header block and body. Raises MqError."""
        content = self.path.read_bytes()
        if not self.pack:
            return content
        pack, place = MessageId.parse(self.pack), MessageId.parse(self.id).place
        return content[: pack.header_bytes] + bodies_in(content, pack)[place - 1]

    @property
    def stamp(self) -> Stamp:
        return Stamp.from_mtime_ns(self.status.st_mtime_ns)


class Found:
    """The messages' files in a root, by id, and its queues."""

    def __init__(self, root: Path) -> None:
        self.queues = queues_of(root)
        self.tombstones = {path.name for path in (root / "deleted").iterdir()}
        self.marks_ms = {path.name: _due_ms(path) for path in _files(root / "purged")}
        self.torn: list[str] = []
        """Queues whose settings cannot be parsed."""
        self.visibility_s: dict[str, float | None] = {}
        for path in _files(root / "settings"):
            try:
                self.visibility_s[path.stem] = json.loads(path.read_bytes()).get("visibility_s")
            except ValueError:
                self.torn.append(path.stem)
        self.schedules = schedules_of(root)
        self.crossing = {
            queue.removesuffix(SIDELINE_SUFFIX)
            for path in _files(root / "crossings")
            for queue in path.name.split(":")[-2:]
        }
        """The queues that messages are taken from and to, by runs that are not over, or to a
        shared sideline.
        """
        self.heads = {
            (path.parts[-4], path.name): os.readlink(path)
            for path in (root / "queues").glob("*/.groups/*/*")
            if path.is_symlink()
        }
        """What the links of groups say, by queue and group."""
        self.failures = {path.name: path.read_text() for path in files_below(root / "failures")}
        """By uuid: what is kept of its message."""
        self.top = root
        self.places: dict[str, list[Place]] = defaultdict(list)
        for file in _places(root):
            for place in _unpacked(file):
                self.places[place.id].append(place)

    def states(self, message_id: str) -> set[State]:
        return {place.state for place in self.places.get(message_id, [])}

    def is_purged(self, queue: str, message_id: str) -> bool:
        """Whether the queue's mark says so."""
        return MessageId.parse(message_id).published_ms <= self.marks_ms.get(queue, -1)

    def alive(self, queue: str, message_id: str) -> set[State]:
        """The states of a message that may still be served."""
        if self.is_purged(queue, message_id):
            return set()
        return self.states(message_id) & set(ALIVE)

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


def queues_of(root: Path) -> set[str]:
    """The names of its queues."""
    return {path.name for path in (root / "queues").iterdir() if not path.name.startswith(".")}


def schedules_of(root: Path) -> dict[tuple[str, ...], int]:
    """The numbers of its schedules' bodies, by queue and name."""
    return {
        tuple(path.name.split(":")): schedule_number(path.read_bytes())
        for path in _files(root / "schedules")
    }


def schedule_number(content: bytes) -> int:
    """The number of a schedule's body. AssertionError when the file is torn."""
    line, _, rest = content.partition(b"\n")
    try:
        said = json.loads(line)
    except ValueError:
        raise AssertionError(f"torn: {content[:100]!r}") from None
    return number_in(rest[said.get("head", 0) :])


def _files(folder: Path) -> list[Path]:
    if not folder.exists():
        return []
    return [path for path in folder.iterdir() if not path.name.startswith(".")]


def _due_ms(path: Path) -> int:
    return Stamp.from_mtime_ns(path.stat().st_mtime_ns).due_ms


def _unpacked(place: Place) -> Iterator[Place]:
    """The messages of a file. What waits for a pack's parting is one once the pack is there."""
    pack, folder = MessageId.parse(place.id), place.path.parent
    if folder.parent.name == PARTS:
        tried = parse_try(folder.name)
        parted = folder / f"{tried.queue}:{tried.pack}"
        # A second name here means nothing.
        is_here = not pack.items and place.status.st_nlink == 1
        if is_here and parted.exists():
            # Before the pack's other name is gone no item moves: it counts for them.
            file = parted.lstat() if parted.lstat().st_nlink > 1 else place.status
            yield replace(place, state=tried.state, status=file)
    elif not pack.items:
        yield place
    else:
        for item in pack.all_items():
            yield replace(place, id=item.text, pack=pack.text)


FOLDERS = ((NEW, "new"), (DELAYED, "delay"), (LEASED, "leases"), (REMOVED, "remove"))


def _places(root: Path) -> Iterator[Place]:
    for queue_folder in (root / "queues").glob("*/"):
        for path in files_below(queue_folder):
            yield Place(READY, queue_folder.name, path.name, path, path.lstat())
    for state, folder in FOLDERS:
        for path in files_below(root / folder):
            queue, separator, message_id = path.name.partition(":")
            if separator:
                yield Place(state, queue, message_id, path, path.lstat())


def broken(ledger: Ledger, found: Found) -> list[str]:
    """The promises that the root does not keep; none when all is well."""
    return [
        *_queues(ledger, found),
        *_settings(ledger, found),
        *_schedules(ledger, found),
        *_bodies(ledger, found),
        *_names(found),
        *_keys(found),
        *_groups(ledger, found),
        *_purged(ledger, found),
        *_bulks(ledger, found),
        *_failures(ledger, found),
        *_totals(ledger, found),
        *(
            f"{message_id} {problem}; {told}, found {found.places.get(message_id)}"
            for message_id, told in ledger.messages.items()
            for problem in _message(ledger, told, found, message_id)
        ),
    ]


def _queues(ledger: Ledger, found: Found) -> Iterator[str]:
    for queue, last in ledger.queues.items():
        if last in ("made", "made_anew") and queue not in found.queues:
            yield f"the queue {queue} was made and is not there"
        if last == "dropped" and queue in found.queues:
            yield f"the queue {queue} was deleted and is there"
        if last == "made_anew" and queue in found.tombstones:
            yield f"the tombstone of {queue} came back"


def _failures(ledger: Ledger, found: Found) -> Iterator[str]:
    """What was answered is kept as long as its message lives."""
    for message_id, said in ledger.failures.items():
        places = found.places.get(message_id, [])
        of = places[0].file_id if places else MessageId.parse(message_id)
        kept = found.failures.get(of.uuid, "")
        if found.states(message_id) & set(ALIVE) and not all(f'"{each}"' in kept for each in said):
            yield f"the failures {said} of {message_id} were kept, and are {kept!r}"


def _totals(ledger: Ledger, found: Found) -> Iterator[str]:
    """Nothing is counted twice, and what was folded is kept."""
    if not ledger.counted:
        return
    totals = TotalsLedger(root_of(Layout.of(found.top), Files(), SystemClock()))
    for queue, counted in ledger.counted.items():
        total = totals.of(QueueName(queue))[Total.PUBLISHED]
        if not ledger.folded[queue] <= total <= counted:
            folded = ledger.folded[queue]
            yield f"of {queue} {counted} were counted, {folded} folded; it has {total}"


def _settings(ledger: Ledger, found: Found) -> Iterator[str]:
    for queue in found.torn:
        yield f"the settings of {queue} are torn"
    for queue, allowed in ledger.visibility_s.items():
        if (visibility_s := found.visibility_s.get(queue)) not in allowed:
            yield f"the visibility of {queue} is {visibility_s}, none of {allowed}"


def _schedules(ledger: Ledger, found: Found) -> Iterator[str]:
    for (queue, name), allowed in ledger.schedules.items():
        if (number := found.schedules.get((queue, name))) not in allowed:
            yield f"the schedule {name} of {queue} is {number}, none of {allowed}"


def _bodies(ledger: Ledger, found: Found) -> Iterator[str]:
    for message_id, places in found.places.items():
        for place in places:
            if place.state not in ALIVE:
                continue
            try:
                number = number_in_file(place.content(), message_id)
            except (AssertionError, ValueError, MqError) as error:
                yield f"{message_id} in {place.path}: {error}"
                continue
            told = ledger.messages.get(message_id)
            if told is not None and told.number not in (None, number):
                yield f"{message_id} has the body {number}, not {told.number}"


def _names(found: Found) -> Iterator[str]:
    for places in found.with_two_names():
        yield f"{places[0].id} stands in {[place.path for place in places]}"


def _keys(found: Found) -> Iterator[str]:
    """No two living messages of a queue have one key; what was sidelined has none."""
    holders: dict[tuple[str, str], set[str]] = defaultdict(set)
    for places in found.places.values():
        for place in places:
            key = MessageId.parse(place.id).key
            is_sideline = place.queue.endswith(SIDELINE_SUFFIX)
            if key is not None and place.state in ALIVE and not is_sideline:
                holders[place.queue, key.text].add(place.id)
    for (queue, key), ids in holders.items():
        if len(ids) > 1 and queue in found.queues:
            yield f"{sorted(ids)} of {queue} have the key {key}"


def _groups(ledger: Ledger, found: Found) -> Iterator[str]:
    """What was claimed of a group, and not removed, is what its link says."""
    for message_id, told in ledger.messages.items():
        group = MessageId.parse(message_id).group
        if not group or found.states(message_id) != {DELAYED} or told.queue not in found.queues:
            continue
        if (head := found.heads.get((told.queue, group))) != message_id:
            yield f"{message_id} was claimed, and its group's link says {head}"


def _bulks(ledger: Ledger, found: Found) -> Iterator[str]:
    """All of a bulk publish, or nothing. What was deleted since may be reaped."""
    for ids in ledger.bulks:
        told = [ledger.messages.get(message_id) for message_id in ids]
        if any(each and (each.delete_asked or each.dropped or each.purge_asked) for each in told):
            continue
        there = [message_id for message_id in ids if found.states(message_id)]
        if len(there) not in (0, len(ids)):
            yield f"of a bulk publish of {len(ids)} only {there} are there"


def _purged(ledger: Ledger, found: Found) -> Iterator[str]:
    for message_id, told in ledger.messages.items():
        # What a deleted queue has in delay/ is out of reach without a mark.
        is_reached = told.queue in found.queues and not (
            told.dropped and ledger.queues[told.queue] == "made_anew"
        )
        if told.purged and is_reached and found.alive(told.queue, message_id):
            yield f"{message_id} came back after its purge; {told}"


def _message(ledger: Ledger, told: Told, found: Found, message_id: str) -> Iterator[str]:
    states = found.states(message_id)
    alive = states & set(ALIVE)
    if told.must_live:
        yield from _reached(told, found, alive)
    if told.published and NEW in states:
        yield "is in new/ still"
    if told.deleted and found.alive(told.queue, message_id):
        yield "came back after its delete"
    if told.dropped and ledger.queues[told.queue] == "made_anew" and alive:
        yield "turned up in the queue that was made anew"
    if told.dropped and READY in states and ledger.queues[told.queue] == "dropped":
        yield "is ready in a queue that was deleted"
    if told.must_live and told.due_ms > ledger.until_ms:
        yield from _kept_back(told, found.places.get(message_id, []))
    yield from _moved(ledger, told, found.places.get(message_id, []), states)
    if alive and told.receives > max(
        place.stamp.receives for place in found.places[message_id] if place.state in alive
    ):
        yield "has forgotten a receive"


def _reached(told: Told, found: Found, alive: set[State]) -> Iterator[str]:
    if not alive:
        yield "is nowhere"
    if told.queue not in found.queues:
        yield "is out of reach, without its queue"


def _moved(ledger: Ledger, told: Told, places: list[Place], states: set[State]) -> Iterator[str]:
    if told.lies_in and states != {told.lies_in}:
        yield f"was moved to {told.lies_in.value}, and is not there alone"
    if told.crossed and any(place.queue != told.queue for place in places):
        yield "came back from its sideline, or from its queue"
    has_time = told.lies_in is READY and not told.is_timeless
    if has_time and any(place.stamp.due_ms > ledger.until_ms for place in places):
        yield "was put back, and is not due"


def _kept_back(told: Told, places: list[Place]) -> Iterator[str]:
    """Of a message that is not due yet."""
    if {place.state for place in places} & {READY, DELAYED} != {DELAYED}:
        yield "is not due, and is not in delay/ alone"
    if any(place.stamp.due_ms < told.due_ms for place in places):
        yield "comes back before its time"
