"""What a batch read shows of packs: their items, each as a message; and how they are cut."""

from collections.abc import Iterable
from pathlib import Path

import pytest
from harness.browsing import ORDERS, browse, ids, put
from harness.clock import FakeClock
from harness.packs import body_of, new_pack, put_pack
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.model.headers import print_block
from mq.model.lifecycle import State
from mq.model.names import MessageId
from mq.spark.browsing import manner_of, names_of
from mq.spark.listing import Block
from mq.spark.options import ReadOptions
from mq.spark.partitions import Cut, groups, lines, partitions
from mq.spark.reading import batches
from mq.spark.rows import DEFAULT_HEADERS
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.bucket_names import IN_COMMON
from mq.store.opening import open_root

BLOCK = print_block((("ce-id", "7"),))


@pytest.fixture
def root(tmp_path: Path) -> Root:
    made = open_root(str(tmp_path / "root"), Files(), FakeClock())
    Path(made.layout.queue(ORDERS)).mkdir()
    return made


def packed(
    root: Root, items: int, state: State = State.READY, block: bytes = b"", bucket: bool = False
) -> MessageId:
    pack = new_pack(items, MessageId(new_pack(2).uuid, 3, header_bytes=len(block)))
    spot = IN_COMMON.bucket(pack) if bucket and state is not State.READY else ""
    path = Path(root.layout.path(state, ORDERS, pack, spot))
    path.parent.mkdir(exist_ok=True)
    put_pack(path, pack, block, 1_700_000_000_000, 2)
    return pack


def messages(packs: Iterable[MessageId]) -> list[MessageId]:
    return [item for pack in packs for item in pack.all_items()]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("with_value", [True, False])
@pytest.mark.parametrize("state", [State.READY, State.DELAYED, State.REMOVED])
def test_each_item_is_a_row(root: Root, state: State, with_value: bool, threads: int) -> None:
    packs = [
        packed(root, items, state, block, bucket)
        for items, block, bucket in ((3, b"", False), (100, BLOCK, False), (2, BLOCK, True))
    ]
    single = MessageId(new_pack(2).uuid)
    put(root.layout.root, single, b"body", state=state)
    rows = {
        row["id"]: row
        for row in browse(root, state=state, include_value=with_value, threads=threads)
    }
    wanted = messages(packs)
    assert sorted(rows) == sorted([single.text, *(each.text for each in wanted)])
    for item in wanted:
        row, body = rows[item.text], body_of(item)
        assert (row["value"], row["size"]) == (body if with_value else None, len(body))
        assert (row["priority"], row["receives"], row["state"]) == (3, 2, state.value)
        extra = [("ce-id", "7")] if item.header_bytes else []
        assert row["headers"] == [*DEFAULT_HEADERS, *extra]


def test_a_damaged_pack_is_one_row_and_hides_no_other(
    root: Root, caplog: pytest.LogCaptureFixture
) -> None:
    sound, torn = packed(root, 3), packed(root, 4)
    path = Path(root.layout.path(State.READY, ORDERS, torn))
    path.write_bytes(path.read_bytes()[:-1])
    rows = browse(root)
    assert ids(rows) == sorted([torn.text, *(each.text for each in sound.all_items())])
    assert [(row["value"], row["size"]) for row in rows if row["id"] == torn.text] == [(None, None)]
    assert torn.text in caplog.text


@pytest.mark.parametrize("threads", [1, 3])
def test_conditions_choose_items(root: Root, threads: int) -> None:
    """Those on ids choose items; those on others choose files."""
    low, high = packed(root, 3), packed(root, 4, bucket=True)
    torn = packed(root, 2)
    path = Path(root.layout.path(State.READY, ORDERS, torn))
    path.write_bytes(path.read_bytes()[:-1])
    single = MessageId(new_pack(2).uuid)
    put(root.layout.root, single, b"own")

    def found(where: str) -> list[str]:
        more = {"subscribe": ORDERS.text, "where": where, "readThreads": str(threads)}
        options = ReadOptions.parse({"path": root.layout.root, **more})
        parts = partitions(root, names_of(root, options), Cut())
        read = (batch for each in parts for batch in batches(root, each, manner_of(options)))
        return sorted(row["id"] for batch in read for row in batch.to_pylist())

    items = [each.text for each in messages([low, high])]
    assert found("priority = 3") == sorted([*items, torn.text])
    assert found("priority != 3") == [single.text]
    assert found("due > '2026-01-01T00:00:00Z'") == [torn.text]  # Rewritten just now.
    assert found(f"id = '{low.item(2).text}'") == [low.item(2).text]
    wanted = [low.item(1).text, high.item(4).text, single.text]
    assert found(f"id in ({', '.join(map(repr, wanted))})") == sorted(wanted)
    assert found(f"id = '{low.text}'") == []
    assert found(f"id = '{torn.text}'") == [torn.text]
    assert found(f"id = '{torn.item(1).text}'") == []
    assert found(f"id >= '{high.item(2).text}' and priority = 3") == sorted(
        [high.item(place).text for place in (2, 3, 4)] + [torn.text]
    )


@given(
    sizes=st.lists(st.sampled_from([1, 1, 1, 2, 100]), max_size=60),
    names_max=st.integers(1, 300),
    held_max=st.integers(1, 2000),
)
@settings(deadline=None)
def test_partitions_are_cut_by_messages(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], names_max: int, held_max: int
) -> None:
    root = open_root(str(tmp_path_factory.mktemp("top") / "root"), Files(), FakeClock())
    names = [(new_pack(size) if size > 1 else MessageId(new_pack(2).uuid)).text for size in sizes]
    weights = dict(zip(names, sizes, strict=True))
    cut = Cut(names_max, 1, held_max)
    found = partitions(root, iter([Block("orders", "queues/orders/", names)]), cut)
    read = [
        [name for block in groups(lines(root.files, each)) for name in block.names]
        for each in found
    ]
    assert [name for each in read for name in each] == names
    for each in read:
        count = sum(weights[name] for name in each)
        assert count - weights[each[-1]] < names_max
