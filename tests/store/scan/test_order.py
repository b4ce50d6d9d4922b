"""The order of delivery against a sorted model, wherever the messages lie."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from harness.chance import examples
from harness.clock import FakeClock
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.bucket_names import Shape, shard_of
from mq.store.opening import open_root
from mq.store.scan.order import (
    FOLDERS_PER_LOOK_MAX,
    STRICT,
    Candidate,
    GroupFolders,
    Listing,
    Order,
    list_ready,
)  # fmt: skip

QUEUE = QueueName.parse("orders")
WINDOW_MS = 1 << 16


def uuid(ms: int, count: int, tail: int = 0) -> str:
    digits = f"{ms:012x}7{count:03x}8{tail:015x}"
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


@pytest.fixture
def opened(tmp_path: Path) -> Root:
    root = open_root(str(tmp_path), Files(), FakeClock())
    (tmp_path / "queues" / "orders").mkdir()
    return root


def put(root: Root, message_id: MessageId, bucket: str) -> None:
    folder = Path(root.layout.queue(QUEUE)) / bucket
    folder.mkdir(parents=True, exist_ok=True)
    (folder / message_id.text).touch()


def listed(root: Root, limit: int, order: Order = STRICT) -> Listing:
    found = list_ready(root, QUEUE, limit, order=order)
    assert found is not None
    return found


ids = st.builds(
    lambda ms, count, tail, priority: MessageId(uuid(ms, count, tail), priority),
    st.integers(0, 4 * WINDOW_MS).map(lambda ms: 1_700_000_000_000 + ms),
    st.integers(0, 3),
    st.integers(0, 40),
    st.sampled_from([0, 0, 0, 1, 9]),
)
messages = st.lists(st.tuples(ids, st.integers(0, 2)), max_size=40, unique_by=lambda each: each[0])
shapes = st.builds(Shape, st.sampled_from([7, 8, 9]), st.sampled_from([1, 2, 5]))


@given(messages, shapes, st.integers(1, 45), st.sampled_from([None, 0, 1, 4]))
@settings(deadline=None, max_examples=examples(120), suppress_health_check=list(HealthCheck))
def test_the_first_of_all_places_in_order(
    tmp_path_factory: pytest.TempPathFactory,
    messages: list[tuple[MessageId, int]],
    shape: Shape,
    limit: int,
    start: int | None,
) -> None:
    root = open_root(str(tmp_path_factory.mktemp("root")), Files(), FakeClock())
    Path(root.layout.queue(QUEUE)).mkdir()
    for message_id, place in messages:
        put(root, message_id, ("", shape.bucket(message_id), shape.deep(message_id))[place])
    order = STRICT if start is None else Order(shape.shards, start % shape.shards)
    expected = sorted((each for each, _ in messages), key=lambda each: order.key(each.text))
    found = listed(root, limit, order)
    assert found.ids == expected[:limit]
    assert found.complete or len(found.ids) == limit
    assert not (found.complete and len(expected) > limit)
    # What is fetched by it lies where it says.
    for candidate in found.candidates:
        assert (Path(root.layout.queue(QUEUE)) / str(candidate.bucket) / candidate.name).exists()


def test_strict_order_is_by_priority_then_by_publish_time() -> None:
    late_urgent = MessageId(uuid(9, 1), priority=9)
    early, later = MessageId(uuid(1, 1)), MessageId(uuid(1, 2), extension="json")
    keys = [STRICT.key(each.text) for each in (late_urgent, early, later)]
    assert keys == sorted(keys)


def test_another_shard_comes_when_the_own_one_is_empty() -> None:
    order = Order(shards=4, start=2)
    texts = [uuid(1, count, tail) for count, tail in enumerate((0, 1, 2, 3, 2, 1))]
    assert [shard_of(text, 4) for text in sorted(texts, key=order.key)] == [2, 2, 3, 0, 1, 1]


def test_a_late_message_with_priority_is_found_without_the_backlog_s_buckets(opened: Root) -> None:
    for number in range(20):
        message_id = MessageId(uuid(1_700_000_000_000 + number * WINDOW_MS, 0))
        put(opened, message_id, Shape().bucket(message_id))
    urgent = MessageId(uuid(1_800_000_000_000, 0), priority=3)
    put(opened, urgent, Shape().bucket(urgent))
    found = listed(opened, 1)
    assert found.ids == [urgent]
    assert len(found.mark.mtimes_ns) == 2  # The queue's folder, and the one bucket.


def test_what_is_behind_a_bucket_that_was_not_listed_waits(opened: Root) -> None:
    """Flat messages of the backlog's end are none of the first though they are all known."""
    for number in range(3):
        message_id = MessageId(uuid(1_700_000_000_000 + number * WINDOW_MS, 0))
        put(opened, message_id, Shape().bucket(message_id))
    last = MessageId(uuid(1_700_000_000_000 + 9 * WINDOW_MS, 0))
    put(opened, last, "")
    assert last not in listed(opened, 3).ids
    assert listed(opened, 4).ids[-1] == last


def test_one_look_lists_so_many_folders_and_is_content(opened: Root) -> None:
    count = 2 * FOLDERS_PER_LOOK_MAX
    for number in range(count):
        message_id = MessageId(uuid(1_700_000_000_000 + number * WINDOW_MS, 0))
        put(opened, message_id, Shape().bucket(message_id))
    found = listed(opened, 4096)
    assert len(found.ids) == FOLDERS_PER_LOOK_MAX
    assert not found.complete


def test_empty_buckets_are_told_of(opened: Root) -> None:
    queue = Path(opened.layout.queue(QUEUE))
    (queue / "018bcfe5").mkdir()
    (queue / "018bcfe6" / "00").mkdir(parents=True)
    assert listed(opened, 10).empty == (str(queue / "018bcfe5"), str(queue / "018bcfe6" / "00"))


def test_an_unchanged_queue_is_known_by_all_its_folders(opened: Root) -> None:
    message_id = MessageId(uuid(1_700_000_000_000, 0))
    put(opened, message_id, Shape().deep(message_id))
    assert isinstance(opened.clock, FakeClock)
    opened.clock.advance(60)
    mark = listed(opened, 10).mark
    assert mark.trusted
    assert list_ready(opened, QUEUE, 10, mark) is None
    put(opened, MessageId(uuid(1_700_000_000_000, 1)), Shape().deep(message_id))
    again = list_ready(opened, QUEUE, 10, mark)
    assert again is not None
    assert len(again.ids) == 2


def test_foreign_names_are_no_candidates_anywhere(opened: Root) -> None:
    queue = Path(opened.layout.queue(QUEUE))
    message_id = MessageId(uuid(1_700_000_000_000, 0))
    put(opened, message_id, Shape().bucket(message_id))
    bucket = queue / Shape().bucket(message_id)
    for folder in (queue, bucket):
        (folder / f"{uuid(1, 2)}.exe").touch()
        (folder / f".{uuid(1, 2)}").touch()
        (folder / uuid(1, 3)).mkdir()
        (folder / uuid(1, 4)).symlink_to("/etc/hostname")
    (queue / "018bcfff").symlink_to(bucket)
    assert listed(opened, 10).candidates == [
        Candidate(STRICT.key(message_id.text), Shape().bucket(message_id))
    ]


FOREIGN = (f"{uuid(1, 2)},p=", f"{uuid(1, 2)},p=x", "what-somebody-has-left-here-for-later.tar.gz")


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("order", [STRICT, Order(4, 1)])
def test_a_foreign_name_that_looks_like_an_id_stops_no_look(
    opened: Root, name: str, order: Order
) -> None:
    queue = Path(opened.layout.queue(QUEUE))
    message_id = MessageId(uuid(1_700_000_000_000, 0), priority=2)
    put(opened, message_id, "")
    put(opened, message_id, Shape().bucket(message_id))
    for folder in (queue, queue / Shape().bucket(message_id)):
        (folder / name).touch()
    assert set(listed(opened, 10, order).ids) == {message_id}


def test_many_foreign_names_push_no_message_out(opened: Root) -> None:
    queue = Path(opened.layout.queue(QUEUE))
    for number in range(40):
        (queue / f"{uuid(1, 2)}.{number:03}").touch()
    message_id = MessageId(uuid(1_700_000_000_000, 0))
    put(opened, message_id, "")
    assert listed(opened, 1).ids == [message_id]


def test_a_look_counts_more_files_than_it_keeps(tmp_path: Path) -> None:
    """Else a folder of a large limit would never be full."""
    root = open_root(str(tmp_path), Files(), FakeClock(), folder_max=40)
    Path(root.layout.queue(QUEUE)).mkdir()
    ids = [MessageId(uuid(1_700_000_000_000, count)) for count in range(50)]
    assert root.places.target(State.READY, QUEUE, ids[-1]) == ""
    for message_id in ids:
        put(root, message_id, "")
    assert listed(root, 1).ids == ids[:1]
    assert root.places.target(State.READY, QUEUE, ids[-1])


GROUPS = ["", *(digit * 16 for digit in "abc")]
grouped = st.lists(
    st.tuples(ids, st.sampled_from(GROUPS), st.integers(0, 2)),
    max_size=30,
    unique_by=lambda each: each[0].uuid,
)


@given(st.data(), grouped, shapes)
@settings(deadline=None, max_examples=examples(80), suppress_health_check=list(HealthCheck))
def test_groups_that_wait_are_passed_over(
    tmp_path_factory: pytest.TempPathFactory,
    data: st.DataObject,
    messages: list[tuple[MessageId, str, int]],
    shape: Shape,
) -> None:
    """Whatever looks remember, while messages come and go and other groups wait."""
    clock = FakeClock()
    root = open_root(str(tmp_path_factory.mktemp("root")), Files(), clock)
    top = Path(root.layout.queue(QUEUE))
    top.mkdir()
    remembered = GroupFolders()
    there: dict[str, MessageId] = {}
    waiting = [(replace(each, group=group), place) for each, group, place in messages]
    for _ in range(3):
        come = data.draw(st.integers(0, len(waiting)))
        for message_id, place in waiting[:come]:
            put(root, message_id, ("", shape.bucket(message_id), shape.deep(message_id))[place])
            there[message_id.text] = message_id
        del waiting[:come]
        for name in data.draw(st.sets(st.sampled_from(sorted(there)))) if there else ():
            [path] = top.rglob(name)
            path.unlink()
            del there[name]
        clock.advance(10)
        for folder in (top, *(each for each in top.rglob("*") if each.is_dir())):
            os.utime(folder, ns=(clock.now_ms() * 10**6,) * 2)
        clock.advance(10)
        heads = {
            group: data.draw(st.sampled_from(["elsewhere", *sorted(there)]))
            for group in GROUPS[1:]
            if data.draw(st.booleans())
        }
        found = list_ready(root, QUEUE, 50, heads=heads, folders=remembered)
        assert found is not None
        expected = [
            each for each in there.values() if heads.get(each.group, each.text) == each.text
        ]
        assert found.ids == sorted(expected, key=lambda each: STRICT.key(each.text))
        assert found.passed == {each.group for each in there.values()} - {
            each.group for each in there.values() if each.group not in heads
        } - {
            group
            for group, head in heads.items()
            if all(each.text == head for each in there.values() if each.group == group)
        }


def test_a_bucket_whose_groups_wait_is_listed_once(opened: Root) -> None:
    folders, heads = GroupFolders(), {"a" * 16: "elsewhere"}
    for count in range(3):
        put(opened, MessageId(uuid(1_700_000_000_000, count), group="a" * 16), "018bcfe5/")
    free = MessageId(uuid(1_700_000_000_000, 9, 9))
    put(opened, free, "018bcfe6/")
    for folder in Path(opened.layout.queue(QUEUE)).iterdir():
        os.utime(folder, ns=(10**18, 10**18))  # Long ago.
    listed_folders: list[str] = []
    entries = opened.files.entries

    class Watching(Files):
        def entries(self, path: str) -> Iterator[os.DirEntry[str]]:
            listed_folders.append(os.path.basename(path))
            return entries(path)

    watched = replace(opened, files=Watching())
    for expected in (["orders", "018bcfe5", "018bcfe6"], ["orders", "018bcfe6"]):
        listed_folders.clear()
        found = list_ready(watched, QUEUE, 10, heads=heads, folders=folders)
        assert found is not None
        assert (found.ids, found.passed) == ([free], {"a" * 16})
        assert listed_folders == expected
    [head, *_] = sorted((Path(opened.layout.queue(QUEUE)) / "018bcfe5").iterdir())
    found = list_ready(watched, QUEUE, 10, heads={"a" * 16: head.name}, folders=folders)
    assert found is not None
    assert [each.text for each in found.ids] == [head.name, free.text]
