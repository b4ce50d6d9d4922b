"""Reading a message in the store: what is opened is closed, and what moves is looked for again."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.messages import new_id, put_file
from harness.waiting import comes_true

from mq.model.errors import Busy, MessageNotFound, QueueNotFound
from mq.model.lifecycle import State
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.message import Part
from mq.model.names import MessageId, QueueName
from mq.store.core.root import Root
from mq.store.disk.commit import Committer
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root
from mq.store.operations.read import READ_LOOKS_MAX, Reading, close, read
from mq.store.operations.streams import reading

QUEUE = QueueName.parse("orders")
LARGE = b"x" * (BODY_HELD_BYTES_MAX + 1)


@pytest.fixture
def files() -> FaultyFiles:
    return FaultyFiles()


@pytest.fixture
def root(tmp_path: Path, files: FaultyFiles) -> Root:
    opened = open_root(str(tmp_path / "root"), files, FakeClock())
    os.mkdir(opened.layout.queue(QUEUE))
    return opened


@pytest.fixture
async def committer() -> AsyncIterator[Committer]:
    made = Committer(NoFlusher())
    yield made
    await made.drain()


def put(root: Root, state: State, body: bytes = b"hello") -> MessageId:
    message_id = new_id()
    put_file(Path(root.layout.path(state, QUEUE, message_id)), body)
    return message_id


def whole(size: int, receives: int) -> Part:
    return Part(0, size)


def read_whole(root: Root, message_id: MessageId, with_removed: bool = True) -> Reading:
    return read(root, QUEUE, message_id, whole, with_removed)


def test_what_is_not_held_is_left_open_for_whoever_asked(root: Root, files: FaultyFiles) -> None:
    message_id = put(root, State.DELAYED, LARGE)
    found = read_whole(root, message_id)
    assert (found.body, found.part, found.size) == (None, Part(0, len(LARGE)), len(LARGE))
    assert len(files.open_paths(message_id.text)) == 1
    close(root, found)
    assert files.open_paths(message_id.text) == []


def test_what_is_removed_may_be_left_out(root: Root, files: FaultyFiles) -> None:
    for body in (b"hello", LARGE):
        message_id = put(root, State.REMOVED, body)
        with pytest.raises(MessageNotFound):
            read_whole(root, message_id, with_removed=False)
        found = read_whole(root, message_id)
        assert found.state is State.REMOVED
        close(root, found)
        assert files.open_paths(message_id.text) == []


def test_a_message_that_moves_at_each_look_is_busy(
    root: Root, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen each time, and gone when it is opened."""
    message_id = put(root, State.READY)
    path = root.layout.path(State.READY, QUEUE, message_id)
    aside = Path(path).with_name(".aside")
    opened = files.open_read

    def moved(it: str) -> int:
        os.rename(path, aside)
        try:
            return opened(it)
        finally:
            os.rename(aside, path)

    monkeypatch.setattr(files, "open_read", moved)
    with pytest.raises(Busy):
        read_whole(root, message_id)
    assert files.count("open_read") >= READ_LOOKS_MAX


def test_a_queue_that_is_deleted_between_two_looks(root: Root, files: FaultyFiles) -> None:
    message_id = new_id()
    status = files.status

    def deleting(path: str) -> os.stat_result | None:
        if message_id.text in path and os.path.exists(root.layout.queue(QUEUE)):
            os.rmdir(root.layout.queue(QUEUE))
        return status(path)

    files.status = deleting  # type: ignore[method-assign]
    with pytest.raises(QueueNotFound):
        read_whole(root, message_id)


def test_a_file_that_another_took_the_name_of_is_looked_for_again(
    root: Root, files: FaultyFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    message_id = put(root, State.READY, b"first")
    path = Path(root.layout.path(State.READY, QUEUE, message_id))
    opened = files.open_read

    def replaced(it: str) -> int:
        descriptor = opened(it)
        if path.read_bytes() == b"first":
            put_file(path.with_name(".other"), b"second").rename(path)
        return descriptor

    monkeypatch.setattr(files, "open_read", replaced)
    assert read_whole(root, message_id).body == b"second"
    assert files.open_paths(message_id.text) == []


async def test_nothing_stays_open_of_a_reading_that_nobody_waits_for(
    root: Root, files: FaultyFiles, committer: Committer
) -> None:
    message_id = put(root, State.READY, LARGE)
    gate = files.hold("open_read", message_id.text)
    asked = asyncio.create_task(reading(root, committer, QUEUE, message_id, whole, True))
    await comes_true(gate.reached.is_set)
    asked.cancel()
    gate.open()
    with pytest.raises(asyncio.CancelledError):
        await asked
    assert files.count("open_read", message_id.text) == 1
    assert files.open_paths(message_id.text) == []
