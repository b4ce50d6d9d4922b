"""A batch read that asks each open file what it is says what asking by name says."""

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness.browsing import BEGIN_MS, ORDERS, CountingFiles, an_id, browse, ids, put, with_headers
from harness.clock import FakeClock
from harness.messages import set_due
from harness.processes import eventually
from hypothesis import given
from hypothesis import strategies as st

from mq.model.clock import Moment
from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.names import MessageId
from mq.spark.listing import Block
from mq.spark.reading import entries
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.mounts import FileSystem
from mq.store.opening import open_root

HEADERS = (("ce-id", "1"),)
UUIDS = [an_id(number).text for number in range(4)]
# As long as an id's uuid; of some one character is another: the version's, the variant's, the
# greatest digit of the time, any.
BARE = st.sampled_from([*UUIDS, "f" + UUIDS[0][1:]]) | st.builds(
    lambda text, at, other: text[:at] + other + text[at + 1 :],
    st.sampled_from(UUIDS),
    st.sampled_from([14, 19, 0]) | st.integers(0, 35),
    st.sampled_from("-07f8cgX"),
)
ENDED = st.sampled_from(
    [f"{UUIDS[0]},p=3", f"{UUIDS[1]}.json", f"{UUIDS[1]},p=x", UUIDS[0][1:], f"{UUIDS[0]}0"]
)


@pytest.fixture
def top() -> Iterator[str]:
    """A folder on a tmpfs, whose times are the machine's own."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        yield f"{folder}/root"


def opened(top: str, files: Files) -> Root:
    root = open_root(top, files, FakeClock())
    os.makedirs(root.layout.queue(ORDERS), exist_ok=True)
    return root


def fill(root: Root) -> list[Path]:
    """Messages of every kind, which nobody changes while they are read."""
    top = root.layout.root
    paths = [put(top, an_id(n), b"%d" % n, depth=n % 3, receives=n % 4) for n in range(100)]
    paths.append(put(top, with_headers(200, HEADERS, "json"), b"{}", headers=HEADERS))
    paths.append(put(top, an_id(201, priority=7, key="Zürich/1"), b""))
    last_ns = max(path.stat().st_ctime_ns for path in paths)
    eventually(lambda: Moment.now().is_behind(last_ns), "a time that is behind the last change")
    return paths


class AskedByName(Files):
    """Nothing that it says of an open file is enough."""

    def read_opened(self, path: str) -> tuple[os.stat_result, bytes | None]:
        return super().read_opened(path)[0], None


class Meanwhile(Files):
    """Does something to each file just when it is open."""

    def __init__(self, change: Callable[[str], str]) -> None:
        super().__init__()
        self._change = change

    def read_opened(self, path: str) -> tuple[os.stat_result, bytes | None]:
        content = super().read_opened(path)[1]
        return os.lstat(self._change(path)), content


@pytest.mark.parametrize("threads", [1, 3])
def test_what_did_not_change_is_not_asked_for_by_its_name(top: str, threads: int) -> None:
    files = CountingFiles()
    fill(opened(top, files))
    rows = browse(opened(top, files), threads=threads)
    assert files.read_files == 0
    assert rows == browse(opened(top, AskedByName()), threads=threads)
    assert len(rows) == 102


@pytest.mark.parametrize("threads", [1, 3])
def test_a_message_that_moves_while_it_is_open_has_no_row_with_the_times_of_another_state(
    top: str, threads: int
) -> None:
    moved = {an_id(number).text for number in range(0, 100, 7)}

    def redeliver(path: str) -> str:
        name = os.path.basename(path)
        if name not in moved:
            return path
        target = root.layout.path(State.DELAYED, ORDERS, MessageId.parse(name))
        os.rename(path, target)
        set_due(Path(target), BEGIN_MS + 60_000)
        return target

    fill(opened(top, Files()))
    root = opened(top, Meanwhile(redeliver))
    rows = browse(root, threads=threads)
    assert not moved & set(ids(rows))
    assert len(rows) == 102 - len(moved)
    assert {row["due"].timestamp() * 1000 for row in rows} == {BEGIN_MS}


def test_a_message_that_is_stamped_while_it_is_open_is_read_as_its_name_says(top: str) -> None:
    def stamp(path: str) -> str:
        set_due(Path(path), BEGIN_MS + 60_000)
        return path

    fill(opened(top, Files()))
    rows = browse(opened(top, Meanwhile(stamp)))
    assert {row["due"].timestamp() * 1000 for row in rows} == {BEGIN_MS + 60_000}
    assert len(rows) == 102


def test_a_ctime_tells_only_what_is_surely_over() -> None:
    now = Moment.now()
    assert now.is_behind(now.ns - 10_000_000_001 - now.ns % 1_000_000_000)
    assert not now.is_behind(now.ns)
    assert not now.is_behind(now.ns - 5_000_000)
    assert not now.is_behind((now.ns // 1_000_000_000 - 10) * 1_000_000_000)


def test_a_clock_that_was_set_tells_nothing() -> None:
    now = Moment.now()
    assert now.was_steady(Moment.now())
    hour_ns = 3600 * 1_000_000_000
    for step_ns in (-hour_ns, -100_000_000, hour_ns):
        assert not now.was_steady(Moment(now.ns + step_ns, now.offset_ns + step_ns))


@pytest.mark.parametrize(
    ("kind", "own"),
    [("ext4", True), ("xfs", True), ("btrfs", True), ("tmpfs", True), ("nfs4", False),
     ("fuse.sshfs", False), ("fuse", False), ("overlay", False), ("unknown", False)],
)  # fmt: skip
def test_times_are_the_machines_own_where_that_is_known(kind: str, own: bool) -> None:
    assert FileSystem(kind, "/").has_own_times is own


@given(st.one_of(st.lists(BARE), st.lists(BARE | ENDED)), st.booleans())
def test_names_that_are_parsed_at_once_are_those_that_are_ids(
    texts: list[str], are_prefixed: bool
) -> None:
    names = [f"orders:{text}" for text in texts] if are_prefixed else texts
    found = entries("/top", Block("" if are_prefixed else "orders", "a/", names), 0, len(names))
    wanted = []
    for number, (name, text) in enumerate(zip(names, texts, strict=True)):
        try:
            parsed = MessageId.parse(text)
        except BadName:
            continue
        wanted.append((number, "orders", text, parsed.priority, f"/top/a/{name}"))
    assert [(n, queue, t, known.priority, path) for n, queue, t, known, path in found] == wanted
