"""Looks for a selection, wherever the messages lie: against a sorted model, and what they cost."""

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.chance import examples
from harness.clock import FakeClock
from harness.selections import Grouped, Message, Term, Wanted, messages, terms, trees
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mq.model.errors import QueueNotFound
from mq.model.headers import Headers, print_block
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName
from mq.model.selection import Selection
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.bucket_names import Shape
from mq.store.opening import open_root
from mq.store.scan.barren import BARREN_NAMES_MAX, Allowance, Allowances, Barren
from mq.store.scan.order import STRICT, Listing, Order
from mq.store.scan.selecting import SelectedLook

QUEUE = QueueName.parse("orders")
WINDOW_MS = 1 << 16
BEGAN_MS = 1_700_000_000_000
URGENT = Selection.parse("priority:5..")
PAID = Selection.parse("header:ce-type=order.paid")


class CountingFiles(Files):
    """Counts what a look costs. Lists by name, as some file systems do: what is cut off of a folder
    is then followed by more.
    """

    def __init__(self) -> None:
        super().__init__()
        self.listed: list[str] = []
        self.blocks: list[str] = []

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        self.listed.append(folder)
        return iter(sorted(super().entries(folder), key=lambda entry: entry.name))

    def read_file(self, path: str, size: int) -> bytes:
        self.blocks.append(path)
        return super().read_file(path, size)

    def forget(self) -> None:
        self.listed, self.blocks = [], []


def uuid(ms: int, count: int, tail: int = 0) -> str:
    digits = f"{ms:012x}7{count:03x}8{tail:015x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@pytest.fixture
def opened(tmp_path: Path) -> Root:
    root = open_root(str(tmp_path), CountingFiles(), FakeClock())
    Path(root.layout.queue(QUEUE)).mkdir()
    return root


class Places:
    """One root for all of a test's examples, each with a queue of its own: to open one takes
    flushes.
    """

    def __init__(self, path: Path) -> None:
        self.clock = FakeClock()
        self.root = open_root(str(path), Files(), self.clock)
        self._queues = 0

    def queue(self) -> QueueName:
        """Another queue, with nothing in it."""
        self._queues += 1
        name = QueueName.parse(f"orders{self._queues}")
        Path(self.root.layout.queue(name)).mkdir()
        return name


def counted(root: Root) -> CountingFiles:
    assert isinstance(root.files, CountingFiles)
    return root.files


@pytest.fixture
def places(tmp_path: Path) -> Places:
    return Places(tmp_path)


def settle(root: Root) -> None:
    """Lets so much time pass that folders' mtimes are believed."""
    assert isinstance(root.clock, FakeClock)
    root.clock.advance(60)
    counted(root).forget()


def put(
    root: Root, message_id: MessageId, bucket: str, headers: Headers = (), queue: QueueName = QUEUE
) -> Path:
    folder = Path(root.layout.queue(queue)) / bucket
    folder.mkdir(parents=True, exist_ok=True)
    (folder / message_id.text).write_bytes(print_block(headers))
    return folder


def listed(
    root: Root,
    selection: Selection,
    limit: int = 1000,
    barren: Barren | None = None,
    order: Order = STRICT,
) -> Listing:
    """A whole look."""
    look = SelectedLook(
        root, QUEUE, limit, selection, Barren(Allowances()) if barren is None else barren, order
    )
    while (listing := look.go_on()) is None:
        pass
    return listing


spots = st.tuples(
    st.integers(0, 4 * WINDOW_MS).map(lambda ms: BEGAN_MS + ms),
    st.integers(0, 3),
    st.integers(0, 40),
).map(lambda each: uuid(*each))
placed = st.lists(
    st.tuples(spots, messages, st.integers(0, 2)), max_size=40, unique_by=lambda each: each[0]
)
shapes = st.builds(Shape, st.sampled_from([7, 8, 9]), st.sampled_from([1, 2, 5]))


@given(
    placed, terms | st.tuples(trees), shapes, st.integers(1, 45), st.integers(1, 200),
    st.none() | st.integers(0, 4 * WINDOW_MS), st.sampled_from([None, 0, 1, 4]),
)  # fmt: skip
@settings(deadline=None, max_examples=examples(100), suppress_health_check=list(HealthCheck))
def test_the_first_of_a_selection_in_order(
    places: Places,
    given_messages: list[tuple[str, Message, int]],
    wanted: tuple[Term, ...],
    shape: Shape,
    limit: int,
    per_hop: int,
    purged: int | None,
    start: int | None,
) -> None:
    root, queue = places.root, places.queue()
    purged_ms = 0 if purged is None else BEGAN_MS + purged
    if purged is not None:
        mark = Path(root.layout.purge_mark(queue))
        mark.touch()
        os.utime(mark, ns=(0, Stamp(purged_ms).mtime_ns()))
    expected = []
    for text, message, place in given_messages:
        message_id, headers = message.stored(text)
        spot = ("", shape.bucket(message_id), shape.deep(message_id))[place]
        put(root, message_id, spot, headers, queue)
        if message_id.published_ms > purged_ms and all(each.holds(message) for each in wanted):
            expected.append(message_id)
    order = STRICT if start is None else Order(shape.shards, start % shape.shards)
    expected.sort(key=lambda each: order.key(each.text))
    look = SelectedLook(
        root, queue, limit, Selection.parse(*map(str, wanted)), Barren(Allowances()), order, per_hop
    )
    found = None
    while found is None:
        found = look.go_on()
    assert found.ids == expected[: len(found.ids)]
    assert found.ids or not expected
    assert not found.complete or found.ids == expected
    for candidate in found.candidates:
        assert (Path(root.layout.queue(queue)) / str(candidate.bucket) / candidate.name).exists()


# Of which about half of all messages are; and what may be remembered of folders, and of names.
COMMON = st.sampled_from(
    [
        (Wanted("priority", priorities=(0, 4)),),
        (Wanted("content-type", "text/", is_beginning=True),),
        (Wanted("header", name="ce-type", is_beginning=True),),
        (Wanted("header", name="ce-type", is_beginning=True), Wanted("priority")),
        (Grouped("not", (Wanted("header", name="ce-type", is_beginning=True),)),),
    ]
)
ALLOWED = st.sampled_from([0, 2, 100, 100])


class Looking(RuleBasedStateMachine):
    """One selection's looks while messages come and go: what is remembered hides none. Folders
    change by the fake clock, as coarsely as a kernel's: changes of one moment leave one mtime.
    """

    places: Places

    @initialize(wanted=COMMON, folders=ALLOWED, names=ALLOWED)
    def begin(self, wanted: tuple[Term, ...], folders: int, names: int) -> None:
        self.root, self.clock = self.places.root, self.places.clock
        self.queue = self.places.queue()
        self.wanted = wanted
        self.selection = Selection.parse(*map(str, wanted))
        self.allowances = Allowances(Allowance(folders), Allowance(names))
        self.most = (folders, names)
        self.barren = Barren(self.allowances)
        self.there: dict[MessageId, tuple[Message, Path]] = {}
        self.changed(Path(self.root.layout.queue(self.queue)))

    def changed(self, folder: Path) -> None:
        queue = Path(self.root.layout.queue(self.queue))
        while folder != queue.parent:
            now_ns = self.clock.now_ms() * 1_000_000
            os.utime(folder, ns=(now_ns, now_ns))
            folder = folder.parent

    @rule(
        window=st.integers(0, 2), count=st.integers(0, 30), message=messages,
        place=st.integers(0, 2),
    )  # fmt: skip
    def comes(self, window: int, count: int, message: Message, place: int) -> None:
        message_id, headers = message.stored(uuid(BEGAN_MS + window * WINDOW_MS, count))
        if message_id in self.there:
            return
        spot = ("", Shape().bucket(message_id), Shape().deep(message_id))[place]
        folder = put(self.root, message_id, spot, headers, self.queue)
        self.there[message_id] = (message, folder)
        self.changed(folder)

    @rule(chance=st.randoms(use_true_random=False))
    def goes(self, chance: random.Random) -> None:
        if self.there:
            message_id = chance.choice(sorted(self.there, key=str))
            _, folder = self.there.pop(message_id)
            (folder / message_id.text).unlink()
            self.changed(folder)

    @rule(seconds=st.sampled_from([0.5, 1.0, 2.0, 60.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule(limit=st.sampled_from([1, 3, 100]), per_hop=st.sampled_from([1, 30, 10_000]))
    def looks(self, limit: int, per_hop: int) -> None:
        expected = sorted(
            (
                each
                for each, (message, _) in self.there.items()
                if all(term.holds(message) for term in self.wanted)
            ),
            key=lambda each: STRICT.key(each.text),
        )
        look = SelectedLook(
            self.root, self.queue, limit, self.selection, self.barren, STRICT, per_hop
        )
        found = None
        while found is None:
            found = look.go_on()
        assert found.ids == expected[: len(found.ids)]
        assert found.ids or not expected
        assert not found.complete or found.ids == expected

    @invariant()
    def no_more_is_remembered_than_may_be(self) -> None:
        if hasattr(self, "barren"):
            assert len(self.barren) + self.allowances.folders.left == self.most[0]
            assert 0 <= self.allowances.names.left <= self.most[1]

    def teardown(self) -> None:
        if hasattr(self, "barren"):
            self.barren.forget()
            assert (self.allowances.folders.left, self.allowances.names.left) == self.most


@pytest.mark.certificate
def test_looks_while_messages_come_and_go(places: Places) -> None:
    Looking.places = places
    run = Looking.TestCase
    run.settings = settings(deadline=None, max_examples=examples(40), stateful_step_count=30)
    run().runTest()


def backlog(root: Root, buckets: int, each: int, priority: int = 0, headers: Headers = ()) -> None:
    """So many messages, of a second more each, in so many buckets."""
    for number in range(buckets):
        for count in range(each):
            message_id = MessageId(
                uuid(BEGAN_MS + number * WINDOW_MS, count),
                priority,
                header_bytes=len(print_block(headers)),
            )
            put(root, message_id, Shape().bucket(message_id), headers)


def test_buckets_of_other_priorities_are_not_listed(opened: Root) -> None:
    backlog(opened, buckets=20, each=3)
    urgent = MessageId(uuid(BEGAN_MS, 9), priority=7)
    put(opened, urgent, Shape().bucket(urgent))
    counted(opened).forget()
    assert listed(opened, URGENT).ids == [urgent]
    assert len(counted(opened).listed) == 2


def test_a_look_after_the_first_lists_what_changed_and_no_more(opened: Root) -> None:
    backlog(opened, buckets=30, each=5)
    wanted, barren = Selection.parse("key:*"), Barren(Allowances())
    settle(opened)
    assert listed(opened, wanted, barren=barren) == Listing(
        [], True, listed(opened, wanted, barren=Barren(Allowances())).mark
    )
    counted(opened).forget()
    assert listed(opened, wanted, barren=barren).complete
    assert counted(opened).listed == []
    one = MessageId.parse(f"{uuid(BEGAN_MS + 7 * WINDOW_MS, 9)},k=a")
    bucket = put(opened, one, Shape().bucket(one))
    assert listed(opened, wanted, barren=barren).ids == [one]
    assert counted(opened).listed == [str(bucket)]


def test_a_young_folder_is_listed_again(opened: Root) -> None:
    barren = Barren(Allowances())
    backlog(opened, buckets=2, each=2)
    for _ in range(2):
        counted(opened).forget()
        assert not listed(opened, Selection.parse("key:*"), barren=barren).ids
        assert len(counted(opened).listed) == 3


def test_a_folder_with_a_match_is_looked_into_again(opened: Root) -> None:
    backlog(opened, buckets=2, each=2, priority=7)
    settle(opened)
    barren = Barren(Allowances())
    first = listed(opened, URGENT, barren=barren).ids
    assert len(first) == 4
    assert listed(opened, URGENT, barren=barren).ids == first


OTHER = (("ce-type", "order.created"),)


def test_header_blocks_are_read_once(opened: Root) -> None:
    backlog(opened, buckets=4, each=6, headers=OTHER)
    plain = MessageId(uuid(BEGAN_MS, 99))
    put(opened, plain, "")
    settle(opened)
    allowances = Allowances()
    barren = Barren(allowances)
    assert listed(opened, PAID, barren=barren).complete
    assert len(counted(opened).blocks) == 24  # What has no block needs no reading.
    counted(opened).forget()
    assert listed(opened, PAID, barren=barren).complete
    assert counted(opened).blocks == []
    # A folder that does not change is remembered as a whole, and none of its names.
    assert allowances.names.left == BARREN_NAMES_MAX


def test_one_selection_leaves_others_their_share_of_what_is_remembered(opened: Root) -> None:
    backlog(opened, buckets=12, each=1)
    settle(opened)
    allowances = Allowances(Allowance(10), Allowance(10))
    first, second = Barren(allowances), Barren(allowances)
    for barren in (first, second):
        assert listed(opened, Selection.parse("not(priority:0)"), barren=barren).complete
    assert (len(first), len(second), allowances.folders.left) == (6, 3, 1)


def test_a_folder_that_goes_on_changing_has_its_blocks_read_twice_at_most(opened: Root) -> None:
    backlog(opened, buckets=1, each=20, headers=OTHER)
    allowances = Allowances()
    barren, reads = Barren(allowances), []
    for count in range(4):
        settle(opened)
        assert listed(opened, PAID, barren=barren).complete
        reads.append(len(counted(opened).blocks))
        another = MessageId(uuid(BEGAN_MS, 100 + count))
        folder = put(opened, another, Shape().bucket(another))
        os.utime(folder, ns=(0, count))
    assert reads == [20, 20, 0, 0]
    for each in sorted(folder.iterdir())[:5]:  # Of those that were read.
        each.unlink()
    os.utime(folder, ns=(0, 9))
    assert listed(opened, PAID, barren=barren).complete
    assert allowances.names.left == BARREN_NAMES_MAX - 15
    barren.forget()
    assert allowances.names.left == BARREN_NAMES_MAX


def test_what_a_block_decides_is_found_where_it_is(opened: Root) -> None:
    backlog(opened, buckets=3, each=4, headers=OTHER)
    paid = (("ce-id", "1"), ("ce-type", "order.paid"))
    message_id = MessageId(uuid(BEGAN_MS + WINDOW_MS, 2, 1), header_bytes=len(print_block(paid)))
    put(opened, message_id, Shape().deep(message_id), paid)
    assert listed(opened, PAID).ids == [message_id]


def test_work_is_done_in_hops(opened: Root) -> None:
    backlog(opened, buckets=10, each=10)
    last = MessageId.parse(f"{uuid(BEGAN_MS + 50 * WINDOW_MS, 9)},k=a")
    put(opened, last, Shape().bucket(last))
    look = SelectedLook(
        opened, QUEUE, 10, Selection.parse("key:a"), Barren(Allowances()), names_per_hop=40
    )
    hops = 0
    while (found := look.go_on()) is None:
        hops += 1
        assert len(counted(opened).listed) <= 3
        counted(opened).forget()
    assert hops >= 4
    assert found.ids == [last]


def test_a_folder_of_very_many_is_looked_through_in_parts(opened: Root) -> None:
    """Only so many names are kept of one at a time: nothing behind them is lost."""
    for count in range(40):
        put(opened, MessageId(uuid(BEGAN_MS, count), header_bytes=23), "", OTHER)
    paid = (("ce-type", "order.paid"),)
    ids = [MessageId(uuid(BEGAN_MS, 100 + count), header_bytes=20) for count in range(30)]
    for message_id in ids:
        put(opened, message_id, "", paid)
    for limit in (1, 2, 30, 31):
        assert listed(opened, PAID, limit).ids == ids[:limit]


def test_a_queue_that_goes_meanwhile_is_not_found(opened: Root) -> None:
    with pytest.raises(QueueNotFound):
        SelectedLook(opened, QueueName.parse("others"), 1, URGENT, Barren(Allowances())).go_on()
    backlog(opened, buckets=3, each=3)
    look = SelectedLook(
        opened, QUEUE, 1, Selection.parse("key:a"), Barren(Allowances()), names_per_hop=1
    )
    assert look.go_on() is None
    Path(opened.layout.queue(QUEUE)).rename(opened.layout.queue(QUEUE) + "-gone")
    with pytest.raises(QueueNotFound):
        look.go_on()


def test_foreign_names_are_none_of_a_selection(opened: Root) -> None:
    queue = Path(opened.layout.queue(QUEUE))
    message_id = MessageId(uuid(BEGAN_MS, 0), priority=9, header_bytes=len(print_block(OTHER)))
    folder = put(opened, message_id, Shape().bucket(message_id), OTHER)
    for each in (queue, folder):
        (each / f"{uuid(1, 2)},p=9.exe").touch()
        (each / f".{uuid(1, 2)},p=9").touch()
        (each / "what-somebody-has-left-here-for-later,p=9").touch()
        (each / f"{uuid(1, 3)},p=9").mkdir()
        (each / f"{uuid(1, 4)},p=9").symlink_to("/etc/hostname")
        (each / f"{uuid(1, 4)},p=9,h=9").symlink_to("/etc/hostname")
    (queue / "p9-018bcfff").symlink_to(folder)
    assert listed(opened, URGENT).ids == [message_id]
    wanted = Selection.parse("header:ce-type=order.created")
    assert listed(opened, wanted).ids == [message_id]


def test_a_file_shorter_than_its_block_says_no(opened: Root) -> None:
    put(opened, MessageId(uuid(BEGAN_MS, 0), header_bytes=900), "", OTHER[:0])
    assert listed(opened, PAID) == Listing([], True, listed(opened, PAID).mark)


def test_empty_buckets_are_told_of_each_time(opened: Root) -> None:
    queue = Path(opened.layout.queue(QUEUE))
    (queue / "018bcfe5").mkdir()
    (queue / "p7-018bcfe6").mkdir()
    settle(opened)
    barren = Barren(Allowances())
    for _ in range(2):
        assert listed(opened, Selection.parse("key:a"), barren=barren).empty == (
            str(queue / "p7-018bcfe6"), str(queue / "018bcfe5"),
        )  # fmt: skip


def test_where_little_may_be_remembered_looks_cost_more_and_find_the_same(opened: Root) -> None:
    backlog(opened, buckets=5, each=3, headers=OTHER)
    settle(opened)
    barren = Barren(Allowances(Allowance(2), Allowance(1)))
    listed(opened, PAID, barren=barren)
    counted(opened).forget()
    assert listed(opened, PAID, barren=barren).complete
    assert len(barren) == 2
    assert len(counted(opened).listed) == 4


def test_folders_that_are_gone_are_forgotten(opened: Root) -> None:
    backlog(opened, buckets=5, each=1)
    settle(opened)
    barren = Barren(Allowances())
    listed(opened, Selection.parse("key:a"), barren=barren)
    assert len(barren) == 6
    queue = Path(opened.layout.queue(QUEUE))
    for bucket in sorted(queue.iterdir())[:3]:
        for each in bucket.iterdir():
            each.unlink()
        bucket.rmdir()
    listed(opened, Selection.parse("key:a"), barren=barren)
    assert len(barren) == 3
