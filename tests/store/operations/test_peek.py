"""Pages of a queue's messages against a sorted model, and how much is listed for one."""

import itertools
import os
from collections.abc import Iterable
from pathlib import Path

import pytest
from harness.chance import examples
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.messages import put_file
from harness.packs import body_of, put_pack
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.model.lifecycle import State
from mq.model.limits import PEEK_BODY_BYTES
from mq.model.message import Page, cut
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.bucket_names import IN_COMMON, Shape
from mq.store.opening import open_root
from mq.store.operations import peek as operation
from mq.store.operations.read import Reading
from mq.store.scan.order import FOLDERS_PER_LOOK_MAX, STRICT

QUEUE, OTHER = QueueName.parse("orders"), QueueName.parse("others")
WINDOW_MS = 1 << 16
BEGIN_MS = 1_700_000_000_000 // WINDOW_MS * WINDOW_MS


def an_id(ms: int, count: int = 0, tail: int = 0, priority: int = 0, items: int = 0) -> MessageId:
    digits = f"{BEGIN_MS + ms:012x}7{count:03x}8{tail:015x}"
    uuid = f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
    return MessageId(uuid, priority, items=items)


def peek(root: Root, queue: QueueName, page: Page) -> list[Reading]:
    return operation.peek(root, queue, page).found


def a_root(top: Path, files: Files) -> Root:
    root = open_root(str(top), files, FakeClock())
    for queue in (QUEUE, OTHER):
        os.mkdir(root.layout.queue(queue))
    return root


def put(
    root: Root, state: State, message_id: MessageId, depth: int, shape: Shape, queue: QueueName
) -> None:
    """`depth`: flat, in its bucket, or below that."""
    named = shape if state is State.READY else IN_COMMON
    bucket = ("", named.bucket(message_id), named.deep(message_id))[depth]
    path = Path(root.layout.path(state, queue, message_id, bucket))
    path.parent.mkdir(parents=True, exist_ok=True)
    if message_id.items:
        put_pack(path, message_id)
    else:
        put_file(path, message_id.text.encode())


def rows_of(ids: Iterable[MessageId]) -> list[MessageId]:
    """The ids of rows: of a pack its items."""
    return [row for each in ids for row in each.all_items() or (each,)]


def body(message_id: MessageId) -> bytes:
    return body_of(message_id) if message_id.pack_size else message_id.text.encode()


def pages(root: Root, state: State, count: int) -> list[list[Reading]]:
    """Each page behind the last id of the one before."""
    found: list[list[Reading]] = []
    after = None
    while page := peek(root, QUEUE, Page((state,), count, after)):
        found.append(page)
        after = page[-1].id
    return found


STATES = (State.READY, State.DELAYED, State.REMOVED)
ids = st.builds(
    an_id,
    st.integers(0, 4 * WINDOW_MS),
    st.integers(0, 3),
    st.integers(0, 40),
    st.sampled_from([0, 0, 0, 1, 9]),
    st.sampled_from([0, 0, 2, 7]),
) | st.builds(
    # Some of these sort between a pack and its items.
    an_id,
    st.sampled_from([0, WINDOW_MS]),
    st.integers(0, 1),
    st.integers(0, 8).map(lambda place: (place << 48) + 50),
)
messages = st.lists(
    st.tuples(ids, st.integers(0, 2), st.sampled_from(STATES), st.sampled_from([QUEUE, OTHER])),
    max_size=60,
    unique_by=lambda each: each[0].uuid,
)
shapes = st.builds(Shape, st.sampled_from([7, 8, 9]), st.sampled_from([1, 2, 5]))


@given(messages, shapes, st.integers(1, 20))
@settings(deadline=None, max_examples=examples(120), suppress_health_check=list(HealthCheck))
def test_pages_have_every_message_once_and_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[MessageId, int, State, QueueName]],
    shape: Shape,
    count: int,
) -> None:
    root = a_root(tmp_path_factory.mktemp("root"), Files())
    for message_id, depth, state, queue in messages:
        put(root, state, message_id, depth, shape, queue)
    of_state: dict[State, list[MessageId]] = {}
    for state in STATES:
        expected = [each for each, _, its, queue in messages if (its, queue) == (state, QUEUE)]
        expected.sort(key=lambda each: STRICT.key(each.text) if state is State.READY else each.text)
        expected = rows_of(expected)
        of_state[state] = expected
        found = pages(root, state, count)
        assert [reading.id for page in found for reading in page] == expected
        assert all(len(page) == count for page in found[:-1])
        for reading in itertools.chain(*found):
            assert (reading.state, reading.body) == (state, body(reading.id))
    together = peek(root, QUEUE, Page(STATES, count))
    assert [each.id for each in together] == list(itertools.chain(*of_state.values()))[:count]


@given(messages, shapes, ids)
@settings(deadline=None, max_examples=examples(80), suppress_health_check=list(HealthCheck))
def test_a_page_may_begin_behind_an_id_that_is_not_there(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[MessageId, int, State, QueueName]],
    shape: Shape,
    after: MessageId,
) -> None:
    root = a_root(tmp_path_factory.mktemp("root"), Files())
    for message_id, depth, _, _ in messages:
        put(root, State.READY, message_id, depth, shape, QUEUE)
    there = sorted((each for each, *_ in messages), key=lambda each: STRICT.key(each.text))
    found = peek(root, QUEUE, Page((State.READY,), 1000, after))
    assert [reading.id for reading in found] == rows_of(
        each for each in there if STRICT.key(each.text) > STRICT.key(after.text)
    )


@pytest.mark.parametrize("state", STATES)
def test_a_page_lists_and_opens_no_more_than_it_shows(tmp_path: Path, state: State) -> None:
    """Five messages in each of three hundred buckets: whichever the page, the folder of the
    buckets is listed, and those that the page's messages lie in; those that lie wholly before or
    behind are not.
    """
    files = FaultyFiles()
    root = a_root(tmp_path, files)
    all_ids = [an_id(number * WINDOW_MS, count) for number in range(300) for count in range(5)]
    for message_id in all_ids:
        put(root, state, message_id, 1, Shape(), QUEUE)
    for begin in (0, 7, 700, 1485):
        files.calls.clear()
        after = all_ids[begin - 1] if begin else None
        page = peek(root, QUEUE, Page((state,), 10, after))
        assert [reading.id for reading in page] == all_ids[begin : begin + 10]
        listed = [path for call, path in files.calls if call == "entries"]
        top = root.layout.base(state, QUEUE)
        needed = {os.path.dirname(_place(root, state, reading.id)) for reading in page}
        # And, where the page begins behind a bucket's last id, that bucket.
        assert listed[0] == top
        assert needed <= set(listed[1:])
        assert len(listed) <= 1 + len(needed) + 1
        assert files.count("open_read") == len(page)


def _place(root: Root, state: State, message_id: MessageId) -> str:
    shape = Shape() if state is State.READY else IN_COMMON
    return root.layout.path(state, QUEUE, message_id, shape.bucket(message_id))


def test_a_page_is_full_though_one_look_lists_only_so_many_folders(tmp_path: Path) -> None:
    root = a_root(tmp_path, Files())
    all_ids = [an_id(number * WINDOW_MS) for number in range(2 * FOLDERS_PER_LOOK_MAX + 10)]
    for message_id in all_ids:
        put(root, State.DELAYED, message_id, 1, Shape(), QUEUE)
        put(root, State.DELAYED, an_id(1, 2, 3), 1, Shape(), OTHER)
    found = peek(root, QUEUE, Page((State.DELAYED,), len(all_ids) - 1))
    assert [reading.id for reading in found] == all_ids[:-1]


def test_a_page_is_full_though_messages_go_while_it_is_taken(tmp_path: Path) -> None:
    class Hasty(Files):
        """Somebody else takes the first messages just before they are opened."""

        def __init__(self) -> None:
            super().__init__()
            self.taken = 0

        def open_read(self, path: str) -> int:
            if self.taken < 3:
                self.taken += 1
                os.unlink(path)
            return super().open_read(path)

    root = a_root(tmp_path, Hasty())
    all_ids = [an_id(number) for number in range(10)]
    for message_id in all_ids:
        put(root, State.READY, message_id, 0, Shape(), QUEUE)
    found = peek(root, QUEUE, Page((State.READY,), 5))
    assert [reading.id for reading in found] == all_ids[3:8]


def test_what_is_foreign_is_in_no_page(tmp_path: Path) -> None:
    root = a_root(tmp_path, Files())
    message_id = an_id(5)
    put(root, State.DELAYED, message_id, 0, Shape(), QUEUE)
    for name in ("orders:", "orders:x" * 8, f"orders:{an_id(6).text}.no", f".{an_id(6).text}"):
        (tmp_path / "delay" / name).write_bytes(b"foreign")
    (tmp_path / "delay" / f"orders:{an_id(4).text}").symlink_to(tmp_path / "format")
    (tmp_path / "delay" / f"orders:{an_id(3).text}.d").mkdir()
    found = peek(root, QUEUE, Page((State.DELAYED,), 10))
    assert [reading.id for reading in found] == [message_id]


@given(st.text(st.characters(codec="utf-8"), max_size=12), st.integers(0, 48))
def test_a_text_is_cut_between_two_characters(text: str, at: int) -> None:
    begin = cut(text.encode()[:at])
    assert text.startswith(begin.decode())
    assert len(begin) > min(at, len(text.encode())) - 4


@given(st.binary(max_size=20))
def test_what_is_no_text_is_cut_anywhere(data: bytes) -> None:
    try:
        cut(data).decode()
    except UnicodeDecodeError:
        assert cut(data) == data


def test_a_long_text_stays_a_text(tmp_path: Path) -> None:
    root = a_root(tmp_path, Files())
    for number in range(4):
        path = root.layout.path(State.READY, QUEUE, an_id(number))
        put_file(Path(path), b"x" * number + "€".encode() * PEEK_BODY_BYTES)
    for reading in peek(root, QUEUE, Page((State.READY,), 10)):
        assert reading.body is not None
        assert len(reading.body.decode().encode()) in range(
            PEEK_BODY_BYTES - 2, PEEK_BODY_BYTES + 1
        )
        assert reading.size == 3 * PEEK_BODY_BYTES + reading.body.count(b"x")
