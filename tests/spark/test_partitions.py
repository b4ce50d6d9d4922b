"""How a listing is cut, held or in a file of the root."""

import errno
import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.browsing import ORDERS, an_id, browse, ids, put
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mq.spark.listing import Block
from mq.spark.partitions import Cut, groups, lines, partitions
from mq.store.bulk.spools import LISTING_KEPT_S, sweep_spools
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.pipeline import listings
from mq.store.opening import open_root


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    return open_root(str(tmp_path_factory.mktemp("top") / "root"), Files(), FakeClock())


def blocks(sizes: list[int]) -> list[Block]:
    numbers = iter(range(sum(sizes)))
    return [
        Block(
            "" if at % 2 else f"q{at}", f"folder/{at}/", [f"n{next(numbers)}" for _ in range(size)]
        )
        for at, size in enumerate(sizes)
    ]


@given(
    sizes=st.lists(st.integers(0, 40), max_size=12),
    names_max=st.integers(1, 60),
    partitions_min=st.none() | st.integers(1, 20),
    held_max=st.integers(1, 200),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_name_is_in_one_partition_with_its_folder(
    root: Root, sizes: list[int], names_max: int, partitions_min: int | None, held_max: int
) -> None:
    given_blocks = blocks(sizes)
    total = sum(sizes)
    wanted = [(block.queue, block.folder, name) for block in given_blocks for name in block.names]
    found = partitions(root, iter(given_blocks), Cut(names_max, partitions_min, held_max))
    assert all(bool(names.spool) == (total > held_max) for names in found)
    read = [list(groups(lines(root.files, names))) for names in found]
    counts = [sum(len(names) for _, _, names in each) for each in read]
    assert [
        (queue, folder, name) for each in read for queue, folder, names in each for name in names
    ] == wanted
    assert all(0 < count <= names_max for count in counts)
    assert len(counts) >= min(partitions_min or 1, total)


@pytest.mark.parametrize(
    ("names", "tasks"), [(0, 0), (1, 1), (1999, 1), (2000, 2), (10_001, 8), (250_000, 10)]
)
def test_several_tasks_read_what_is_worth_while(root: Root, names: int, tasks: int) -> None:
    ids = [an_id(number).text for number in range(min(names, 20_000))]
    given_blocks = [Block("orders", "queues/orders/", ids[:count]) for count in parted(names)]
    assert len(partitions(root, given_blocks, Cut(partitions_min=None))) == tasks


def parted(names: int) -> list[int]:
    """So many, in parts of 20,000."""
    return [20_000] * (names // 20_000) + [names % 20_000]


def test_a_partition_is_cheap_to_pickle(root: Root) -> None:
    many = Block("orders", "queues/orders/", [an_id(number).text for number in range(25_000)])
    (names,) = partitions(root, [many], Cut())
    assert len(pickle.dumps(names)) < 25_000 * 37 + 1000
    spooled = partitions(root, [many], Cut(held_max=10))
    assert len(pickle.dumps(spooled)) < 1000


def test_a_long_listing_lies_in_the_root_for_a_day(tmp_path: Path) -> None:
    clock = FakeClock()
    root = open_root(str(tmp_path / "root"), Files(), clock)
    os.mkdir(root.layout.queue(ORDERS))
    for number in range(30):
        put(root.layout.root, an_id(number), depth=number % 3)
    assert sweep_spools(root) == 0
    rows = browse(root, cut=Cut(held_max=10, names_max=4))
    assert ids(rows) == [an_id(number).text for number in range(30)]
    (spool,) = Path(listings(root.layout)).iterdir()
    assert spool.stat().st_size > 30 * 36
    assert sweep_spools(root) == 0
    clock.advance(LISTING_KEPT_S + 1)
    assert sweep_spools(root) == 1
    assert not spool.exists()


def test_a_listing_that_fails_leaves_no_file(tmp_path: Path) -> None:
    root = open_root(str(tmp_path / "root"), Files(), FakeClock())

    def failing() -> Iterator[Block]:
        yield from blocks([20, 20])
        raise OSError(errno.EIO, "an error")

    with pytest.raises(OSError, match="an error"):
        partitions(root, failing(), Cut(held_max=10))
    assert list(Path(listings(root.layout)).iterdir()) == []


def test_where_nothing_can_be_written_a_long_listing_is_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = FaultyFiles()
    root = open_root(str(tmp_path / "root"), files, FakeClock())
    files.fail("mkdir", errno.EROFS, listings(root.layout))
    found = partitions(root, blocks([20, 20]), Cut(names_max=15, held_max=10))
    assert [bool(names.spool) for names in found] == [False] * 3
    assert "held in memory" in caplog.text


def test_a_listing_that_was_taken_away_is_an_error(tmp_path: Path) -> None:
    root = open_root(str(tmp_path / "root"), Files(), FakeClock())
    (names,) = partitions(root, blocks([20]), Cut(held_max=10))
    os.unlink(names.spool)
    with pytest.raises(FileNotFoundError):
        lines(root.files, names)
