"""delay/ in an order that stays, a batch at a time."""

from pathlib import Path

import pytest
from harness.chance import examples
from harness.clock import FakeClock
from harness.messages import new_id, put_entry, put_file
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.opening import open_root
from mq.store.scan.delayed_names import delayed_behind

FOLDERS = ("", "0192f3a2/", "0192f3a2/7c/", "0192f3a2/7d/", "0192f3a2b/", "01a2f3a2/", "0292f3a2/")


@pytest.fixture
def opened(root: Path) -> Root:
    return open_root(str(root), Files(), FakeClock())


def put(root: Root, bucket: str, count: int) -> list[str]:
    folder = Path(root.layout.delay) / bucket
    folder.mkdir(parents=True, exist_ok=True)
    return [bucket + put_entry(folder, "orders", due_ms=1).name for _ in range(count)]


def walked(root: Root, limit: int, behind: str = "") -> list[list[str]]:
    batches = []
    pointer: str | None = behind
    while pointer is not None:
        batch = delayed_behind(root, pointer, limit)
        batches.append([each.name for each in batch.found])
        pointer = batch.behind
    return batches


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_each_comes_once_in_order_and_so_many_at_a_time(opened: Root, limit: int) -> None:
    made = [name for bucket in FOLDERS for name in sorted(put(opened, bucket, 3))]
    batches = walked(opened, limit)
    assert [name for batch in batches for name in batch] == made
    assert max(map(len, batches)) <= limit


def test_it_goes_on_behind_any_name_also_one_that_is_gone(opened: Root) -> None:
    made = [name for bucket in FOLDERS for name in sorted(put(opened, bucket, 2))]
    for index, name in enumerate(made):
        (Path(opened.layout.delay) / name).unlink()
        assert [each for batch in walked(opened, 3, name) for each in batch] == made[index + 1 :]


def test_an_empty_delay_has_none(opened: Root) -> None:
    batch = delayed_behind(opened, "", 10)
    assert (batch.found, batch.behind) == ((), None)


def test_what_is_foreign_is_passed_over_and_counted(opened: Root) -> None:
    delay = Path(opened.layout.delay)
    for number in range(5):
        put_file(delay / f"a note {number}")
    (delay / "somebody's").mkdir()
    (delay / f"orders:{new_id().text}").symlink_to("nowhere")
    (name,) = put(opened, "", 1)
    batches = walked(opened, 2)
    assert [each for batch in batches for each in batch] == [name]
    assert len(batches) == 4


@settings(max_examples=examples(30), deadline=None)
@given(
    counts=st.lists(st.integers(0, 4), min_size=len(FOLDERS), max_size=len(FOLDERS)),
    limit=st.integers(1, 12),
)
def test_none_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, counts: list[int], limit: int
) -> None:
    opened = open_root(str(tmp_path_factory.mktemp("root")), Files(), FakeClock())
    made: list[str] = []
    for bucket, count in zip(FOLDERS, counts, strict=True):
        made += sorted(put(opened, bucket, count))
    assert [name for batch in walked(opened, limit) for name in batch] == made
