"""What a process knows of all queues: looked at when due, and when anybody asks all to look."""

import errno
import os
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from hypothesis import given
from hypothesis import strategies as st

from mq.model.limits import REFRESH_EVERY_S
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue, delete_queue
from mq.store.settings.configure import change_settings
from mq.store.settings.registry import (
    REFRESH_ASKED_EVERY_S,
    REFRESH_FIRST_S,
    Refreshed,
    Registry,
    existing_queues,
    list_queues,
)

ORDERS, PAYMENTS = QueueName.parse("orders"), QueueName.parse("payments")
DEFAULTS = QueueSettings()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def opened(tmp_path: Path, files: FaultyFiles, clock: FakeClock) -> Root:
    return open_root(str(tmp_path / "root"), files, clock)


def create(root: Root, *queues: QueueName) -> None:
    for queue in queues:
        run_alone(create_queue(root, queue), NoFlusher())


def delete(root: Root, queue: QueueName) -> None:
    run_alone(delete_queue(root, queue, os.urandom(4).hex()), NoFlusher())


def change(root: Root, queue: QueueName, **patch: object) -> None:
    run_alone(change_settings(root, queue, patch, DEFAULTS), NoFlusher())


def test_what_a_look_finds_is_counted_against_the_last(opened: Root) -> None:
    registry = Registry(opened)
    assert registry.refresh() == Refreshed(0, 0, 0, 0)
    create(opened, ORDERS, PAYMENTS)
    assert registry.queues == {}
    assert registry.refresh() == Refreshed(2, 2, 0, 0)
    assert registry.refresh() == Refreshed(2, 0, 0, 0)
    change(opened, ORDERS, max_receives=3)
    assert registry.refresh() == Refreshed(2, 0, 1, 0)
    found = registry.queues[ORDERS].settings
    assert found is not None
    assert found.max_receives == 3
    delete(opened, ORDERS)
    create(opened, QueueName.parse("new"))
    assert registry.refresh() == Refreshed(2, 1, 0, 1)


def test_only_settings_whose_file_is_another_are_read(opened: Root, files: FaultyFiles) -> None:
    create(opened, ORDERS, PAYMENTS)
    change(opened, ORDERS, max_receives=3)
    change(opened, PAYMENTS, max_receives=4)
    registry = Registry(opened)
    registry.refresh()
    change(opened, PAYMENTS, max_receives=5)
    files.calls.clear()
    registry.refresh()
    read = {os.path.basename(path) for call, path in files.calls if call == "open_claimed"}
    assert read == {"payments.json"}


def test_settings_that_cannot_be_understood_are_not_guessed(opened: Root) -> None:
    create(opened, ORDERS, PAYMENTS)
    Path(opened.layout.settings_of(ORDERS)).write_text("{")
    registry = Registry(opened)
    registry.refresh()
    assert registry.queues[ORDERS].settings is None
    assert registry.queues[PAYMENTS].settings == DEFAULTS
    assert registry.settings(ORDERS) is None


def test_settings_that_are_asked_for_are_those_of_this_moment(opened: Root) -> None:
    create(opened, ORDERS)
    registry = Registry(opened)
    registry.refresh()
    change(opened, ORDERS, max_receives=3)
    found = registry.settings(ORDERS)
    assert found is not None
    assert found.max_receives == 3
    # A queue that nobody has looked at yet is not there by being asked for.
    registry.settings(PAYMENTS)
    assert set(registry.queues) == {ORDERS}


def test_it_is_due_after_a_minute_and_then_every_few(opened: Root, clock: FakeClock) -> None:
    registry = Registry(opened)
    assert not registry.refresh_if_due()
    clock.advance(REFRESH_FIRST_S - 0.001)
    assert not registry.refresh_if_due()
    clock.advance(0.001)
    assert registry.refresh_if_due()
    clock.advance(REFRESH_EVERY_S - 0.001)
    assert not registry.refresh_if_due()
    clock.advance(0.001)
    assert registry.refresh_if_due()


def test_one_that_is_due_more_often_is_so_from_the_start(opened: Root, clock: FakeClock) -> None:
    registry = Registry(opened, every_s=5.0)
    clock.advance(5.0)
    assert registry.refresh_if_due()
    clock.advance(5.0)
    assert registry.refresh_if_due()


def test_who_asks_all_is_heard_by_all_others_within_a_second(
    opened: Root, clock: FakeClock
) -> None:
    a, b = Registry(opened), Registry(opened)
    a.ask_all()
    assert not b.is_due(), "it is looked once a second"
    assert b.next_due_s() == REFRESH_ASKED_EVERY_S
    clock.advance(REFRESH_ASKED_EVERY_S)
    assert b.refresh_if_due()
    assert not a.is_due(), "who asks looks by itself"
    for _ in range(3):
        clock.advance(REFRESH_ASKED_EVERY_S)
        assert not b.refresh_if_due(), "one asking is one look"


def test_two_who_ask_in_one_millisecond_are_two(opened: Root, clock: FakeClock) -> None:
    a, b = Registry(opened), Registry(opened)
    for _ in range(3):
        clock.advance(REFRESH_ASKED_EVERY_S)
        clock.set_ms(1_700_000_000_000)
        a.ask_all()
        assert b.refresh_if_due()


def test_somebody_who_touches_the_file_asks_too(opened: Root, clock: FakeClock) -> None:
    registry = Registry(opened)
    (Path(opened.layout.members) / "refresh").touch()
    clock.advance(REFRESH_ASKED_EVERY_S)
    assert registry.refresh_if_due()
    # Taken away it asks for nothing.
    (Path(opened.layout.members) / "refresh").unlink()
    clock.advance(REFRESH_ASKED_EVERY_S)
    assert not registry.refresh_if_due()


def test_what_was_known_stays_known_when_the_folder_cannot_be_listed(
    opened: Root, files: FaultyFiles, clock: FakeClock
) -> None:
    create(opened, ORDERS)
    registry = Registry(opened)
    registry.refresh()
    files.fail("entries", errno.EIO, where="queues", times=1)
    clock.advance(REFRESH_EVERY_S)
    with pytest.raises(OSError, match="Input/output"):
        registry.refresh_if_due()
    assert set(registry.queues) == {ORDERS}
    assert not registry.refresh_if_due(), "not at once again"
    clock.advance(REFRESH_ASKED_EVERY_S)
    assert registry.refresh_if_due()


def test_what_is_no_queue_s_folder_is_passed_over(opened: Root) -> None:
    create(opened, ORDERS)
    folder = Path(opened.layout.queues)
    (folder / "file").touch()
    (folder / ".hidden").mkdir()
    (folder / "link").symlink_to(folder / "orders")
    assert set(existing_queues(opened)) == {ORDERS}


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,5}(?:_SIDELINE)?", fullmatch=True)


@given(texts=st.sets(names, max_size=12), count=st.integers(1, 5), after=names)
def test_pages_are_all_queues_in_order(
    texts: set[str], count: int, after: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = open_root(str(tmp_path_factory.mktemp("pages")), Files(), FakeClock())
    for text in texts:
        os.mkdir(root.layout.queue(QueueName.parse(text)))
    behind = QueueName.parse(after)
    assert [each.text for each in list_queues(root, 20, behind)] == sorted(
        text for text in texts if text > after
    )
    seen: list[QueueName] = []
    while page := list_queues(root, count, seen[-1] if seen else None):
        assert len(page) <= count
        seen += page
    assert [each.text for each in seen] == sorted(texts)
