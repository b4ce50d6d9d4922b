"""Where a message goes and where it may be; settings files; the names of buckets."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.messages import new_id
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import SettingsUnreadable
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.bucket_names import IN_COMMON, Bucket, Shape, dashed, leading, parse_bucket
from mq.store.format.layout import Layout
from mq.store.format.settings import parse_fields, print_shape, shape_in
from mq.store.opening import open_root, root_of

QUEUE = QueueName.parse("orders")
UUID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"
READY, DELAYED, REMOVED = State.READY, State.DELAYED, State.REMOVED
MAX = 4

shapes = st.builds(Shape, st.sampled_from([7, 8, 9]), st.integers(1, 16))


class CountingFiles(Files):
    """Counts the entries that are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.listed = 0

    def entries(self, folder: str) -> "Iterator[os.DirEntry[str]]":
        for entry in super().entries(folder):
            self.listed += 1
            yield entry


def opened(top: Path, files: Files | None = None, folder_max: int = MAX) -> Root:
    root = open_root(str(top), files or Files(), FakeClock(), folder_max=folder_max)
    Path(root.layout.queue(QUEUE)).mkdir(exist_ok=True)
    return root


def put(root: Root, message_id: MessageId, state: State = READY) -> str:
    """Puts a file where the message goes; its bucket."""
    bucket = root.places.target(state, QUEUE, message_id)
    path = Path(root.layout.path(state, QUEUE, message_id, bucket))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    return bucket


@pytest.mark.parametrize(
    ("shape", "more", "bucket", "deep"),
    [
        (Shape(), "", "0192f3a2/", "0192f3a2/7c/"),
        (Shape(), ",p=7", "p7-0192f3a2/", "p7-0192f3a2/7c/"),
        (Shape(7), "", "0192f3a/", "0192f3a/27/"),
        (Shape(9), ".json", "0192f3a27/", "0192f3a27/c4/"),
        (Shape(8, 16), "", "0192f3a2-11/", "0192f3a2-11/7c/"),
        (Shape(8, 5), ",p=1", "p1-0192f3a2-3/", "p1-0192f3a2-3/7c/"),
        (IN_COMMON, ",p=7", "0192f3a2/", "0192f3a2/7c/"),
    ],
)
def test_the_bucket_follows_from_the_id(shape: Shape, more: str, bucket: str, deep: str) -> None:
    message_id = MessageId.parse(UUID + more)
    assert (shape.bucket(message_id), shape.deep(message_id)) == (bucket, deep)


@given(shapes, st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2**62 - 1)), min_size=1))
def test_a_place_follows_from_what_decides(shape: Shape, said: list[tuple[int, int]]) -> None:
    ids = []
    for priority, tail in said:
        digits = f"{tail % 2**12:012x}7{tail % 3:03x}{(0b10 << 62) | tail:016x}"
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        ids.append(MessageId("-".join(parts), priority))
    decided: dict[str, str] = {}
    for message_id in ids:
        deep = decided.setdefault(shape.decides(message_id), shape.deep(message_id))
        assert deep == shape.deep(message_id)


def test_many_go_where_each_would_but_that_a_folder_may_get_one_batch_more(tmp_path: Path) -> None:
    root = opened(tmp_path)
    for count, bucket in ((5, ""), (2, "0192f3a2/"), (3, "0192f3a2/"), (2, "0192f3a2/7c/")):
        ids = [MessageId(UUID[:13] + new_id().uuid[13:]) for _ in range(count)]
        assert root.places.targets(READY, QUEUE, ids) == [bucket] * count
        for message_id in ids:
            path = Path(root.layout.path(READY, QUEUE, message_id, bucket))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    assert put(root, new_id()).count("/") == 1


def test_many_are_parted_by_their_buckets(tmp_path: Path) -> None:
    root = opened(tmp_path, folder_max=0)
    Path(root.layout.settings_of(QUEUE)).write_bytes(print_shape(Shape(8, 3)))
    ids = [MessageId(new_id().uuid, priority % 4) for priority in range(30)]
    targets = root.places.targets(READY, QUEUE, ids)
    assert targets == [Shape(8, 3).deep(each) for each in ids]


def test_where_something_else_has_the_bucket_s_name_many_lie_flat(tmp_path: Path) -> None:
    root = opened(tmp_path, folder_max=0)
    Path(root.layout.queue(QUEUE), "0192f3a2").touch()
    assert root.places.targets(READY, QUEUE, [MessageId(UUID)] * 3) == [""] * 3


def test_the_folders_that_lead_to_a_bucket() -> None:
    assert leading("/q", "") == ()
    assert leading("/q", "0192f3a2/") == ("/q/0192f3a2",)
    assert leading("/q", "0192f3a2/7c/") == ("/q/0192f3a2", "/q/0192f3a2/7c")


@given(shapes, st.integers(0, 9))
def test_a_bucket_s_name_is_read_back(shape: Shape, priority: int) -> None:
    message_id = MessageId(UUID, priority)
    bucket = parse_bucket(shape.bucket(message_id)[:-1])
    assert bucket is not None
    assert bucket.priority == priority
    assert UUID.startswith(dashed(bucket.digits))
    assert (bucket.shard is None) == (shape.shards == 1)


@pytest.mark.parametrize(
    "name",
    ["0192f3", "0192f3a27c", "0192F3A2", "p0-0192f3a2", "0192f3a2-16", "0192f3a2-", "7c", UUID,
     f"orders:{UUID}.d", ".0192f3a2"],
)  # fmt: skip
def test_other_names_are_no_buckets(name: str) -> None:
    assert parse_bucket(name) is None


def test_a_bucket_stays_for_its_window_and_as_long_again() -> None:
    bucket = Bucket(0, "0192f3a2", None)
    begin_ms, window_ms = 0x0192F3A2 << 16, 1 << 16
    assert bucket.may_be_written(begin_ms)
    assert bucket.may_be_written(begin_ms + 2 * window_ms - 1)
    assert not bucket.may_be_written(begin_ms + 2 * window_ms)
    short = Bucket(0, "0192f3a27", None)
    assert short.may_be_written(begin_ms + 8 * 4096 + 59_999)


@pytest.mark.parametrize("state", [READY, DELAYED, REMOVED])
def test_a_message_goes_flat_then_to_its_bucket_then_below(tmp_path: Path, state: State) -> None:
    root = opened(tmp_path)
    ids = [MessageId(f"0192f3a2-7c4e-7{count:03x}-9b1e-0123456789ab") for count in range(10)]
    assert [put(root, each, state) for each in ids] == (
        [""] * MAX + ["0192f3a2/"] * MAX + ["0192f3a2/7c/"] * 2
    )


@pytest.mark.parametrize("state", [READY, DELAYED, REMOVED])
@pytest.mark.parametrize("made", [Path.touch, os.mkfifo, lambda path: path.symlink_to(path.parent)])
def test_a_message_whose_bucket_s_name_is_taken_lies_flat(
    tmp_path: Path, state: State, made: Callable[[Path], None]
) -> None:
    root = opened(tmp_path)
    ids = [MessageId(f"0192f3a2-7c4e-7{count:03x}-9b1e-0123456789ab") for count in range(MAX + 2)]
    for each in ids[:MAX]:
        put(root, each, state)
    made(Path(root.layout.parent(state, QUEUE), "0192f3a2"))
    assert [put(root, each, state) for each in ids[MAX:]] == ["", ""]


def test_arrivals_go_to_buckets_until_all_are_drained(tmp_path: Path) -> None:
    root = opened(tmp_path)
    ids = [new_id() for _ in range(MAX + 1)]
    buckets = [put(root, each) for each in ids]
    folder = Path(root.layout.queue(QUEUE))
    for message_id in ids[:MAX]:
        (folder / message_id.text).unlink()
        root.places.went(str(folder))
    assert put(root, new_id())
    for path in list((folder / buckets[-1]).iterdir()):
        path.unlink()
    assert put(root, new_id())
    for bucket in list(folder.iterdir()):
        for path in bucket.iterdir():
            path.unlink()
        bucket.rmdir()
    assert isinstance(root.clock, FakeClock)
    root.clock.advance(1)
    assert [put(root, new_id()) for _ in range(MAX)] == [""] * MAX


def test_others_arrivals_are_seen(tmp_path: Path) -> None:
    mine, others = opened(tmp_path), opened(tmp_path)
    assert put(mine, new_id()) == ""
    for _ in range(MAX - 1):
        put(others, new_id())
    assert put(mine, new_id())  # Listed again after its own arrival.


@given(
    st.lists(st.integers(0, 3), max_size=40), st.lists(st.integers(1, 5), min_size=4, max_size=4)
)
def test_wherever_processes_put_messages_each_finds_them(
    tmp_path_factory: pytest.TempPathFactory, turns: list[int], limits: list[int]
) -> None:
    """However differently they judge, and whenever another takes what it can find."""
    top = tmp_path_factory.mktemp("root")
    roots = [opened(top, folder_max=limit) for limit in limits]
    there: list[MessageId] = []
    for number, turn in enumerate(turns):
        message_id = new_id()
        put(roots[turn], message_id)
        there.append(message_id)
        if number % 3 == 2:
            taker = roots[-turn - 1]
            _found(taker, there.pop(0)).unlink()
    for root in roots:
        for message_id in there:
            assert _found(root, message_id).exists()


def _found(root: Root, message_id: MessageId) -> Path:
    spots = list(root.places.spots(READY, QUEUE, message_id))
    assert len(set(spots)) == 3
    paths = [Path(root.layout.path(READY, QUEUE, message_id, spot)) for spot in spots]
    [path] = [path for path in paths if path.exists()]
    return path


def test_what_is_there_is_counted_no_further_than_to_the_limit(tmp_path: Path) -> None:
    files = CountingFiles()
    root = opened(tmp_path, files)
    folder = Path(root.layout.queue(QUEUE))
    for _ in range(50):
        (folder / new_id().text).touch()
    assert put(root, new_id())
    assert files.listed == MAX + 1


def test_arrivals_are_counted_without_a_listing_each(tmp_path: Path) -> None:
    files = CountingFiles()
    root = opened(tmp_path, files, folder_max=1000)
    for _ in range(900):
        assert put(root, new_id()) == ""
    assert files.listed <= 4 * 900  # A listing for each quarter of the limit.


def test_new_has_one_place(tmp_path: Path) -> None:
    root = opened(tmp_path)
    assert list(root.places.spots(State.NEW, QUEUE, new_id())) == [""]


def test_settings_are_read_back(tmp_path: Path) -> None:
    root = opened(tmp_path)
    assert root.facts.shape_now(QUEUE) == Shape()
    path = Path(root.layout.settings_of(QUEUE))
    path.write_bytes(print_shape(Shape(7, 4)))
    assert root.facts.shape_now(QUEUE) == Shape(7, 4)
    path.unlink()
    assert root.facts.shape_now(QUEUE) == Shape()


def test_settings_that_another_process_wrote_anew_are_read_again(tmp_path: Path) -> None:
    root = opened(tmp_path)
    path = Path(root.layout.settings_of(QUEUE))
    for shape in (Shape(7, 4), Shape(9, 4)):
        written = path.with_name(".written")
        written.write_bytes(print_shape(shape))
        written.rename(path)
        assert root.facts.shape_now(QUEUE) == shape


@given(shapes)
def test_any_shape_is_read_as_it_was_printed(shape: Shape) -> None:
    assert shape_in(parse_fields(print_shape(shape))) == shape


def test_fields_that_are_not_known_are_left_alone() -> None:
    assert shape_in(parse_fields(b'{"shards": 2, "visibility_s": 5}')) == Shape(8, 2)


@pytest.mark.parametrize(
    "text",
    [b"", b"{", b"[]", b'"x"', b'{"bucket": 6}', b'{"bucket": "8"}', b'{"shards": 0}',
     b'{"shards": 17}', b'{"shards": true}', b'{"bucket": 8.0}', b"\xff", b"[" * 60_000],
)  # fmt: skip
def test_settings_that_nobody_understands_are_no_guess(text: bytes) -> None:
    with pytest.raises(SettingsUnreadable):
        shape_in(parse_fields(text))


def a_link(path: Path) -> None:
    path.symlink_to(path.with_name("other.json"))


@pytest.mark.parametrize("made", [Path.mkdir, os.mkfifo, a_link])
def test_settings_that_are_no_file_are_no_guess(
    tmp_path: Path, made: Callable[[Path], None]
) -> None:
    root = opened(tmp_path)
    Path(root.layout.settings, "other.json").write_bytes(print_shape(Shape(7, 4)))
    made(Path(root.layout.settings_of(QUEUE)))
    with pytest.raises(SettingsUnreadable):
        root.facts.shape_now(QUEUE)


def test_settings_lie_beside_the_queues_that_they_are_of(tmp_path: Path) -> None:
    """Also where a mover brings messages from one root's folder to another root's queues."""
    root = opened(tmp_path / "destination")
    opened(tmp_path / "source")
    Path(root.layout.settings_of(QUEUE)).write_bytes(print_shape(Shape(7, 4)))
    layout = Layout.between(tmp_path / "source" / "delay", tmp_path / "destination" / "queues")
    between = root_of(layout, Files(), FakeClock(), folder_max=1)
    assert between.facts.shape_now(QUEUE) == Shape(7, 4)
