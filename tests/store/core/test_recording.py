"""What a bulk publish says in its queue's history, once it is rolled forward."""

import json
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.staging import QUEUE, committed, rolled, stage

from mq.model.clock import rfc3339
from mq.model.names import Key
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import attach_root, open_root
from mq.store.operations.queues import create_queue

NAME = "nightly"


@pytest.fixture
def root(tmp_path: Path) -> Root:
    clock = FakeClock()
    run_alone(create_queue(open_root(str(tmp_path), Files(), clock), QUEUE), NoFlusher())
    (tmp_path / "settings" / f"{QUEUE.text}.json").write_text('{"history": true}')
    return attach_root(str(tmp_path), Files(), clock)


def told(top: Path) -> list[tuple[str, str, str | None]]:
    lines = [
        json.loads(line)
        for path in (top / "history" / QUEUE.text).glob("*/spark-*.ndjson")
        for line in path.read_text().splitlines()
    ]
    return [(line["event"], line["id"], line.get("due")) for line in lines]


def test_nothing_is_told_before_it_is_rolled_forward(root: Root, tmp_path: Path) -> None:
    staged, ids = stage(root, [b"a", b"b"])
    committed(root, staged, publish_id=NAME)
    assert told(tmp_path) == []
    rolled(root, Key.parse(NAME))
    expected = [("published", each.text, None) for each in ids]
    assert sorted(told(tmp_path)) == sorted(expected)
    rolled(root, Key.parse(NAME))
    assert len(told(tmp_path)) == 2


@pytest.mark.parametrize("key", [None, "k"])
def test_what_is_for_later_says_when(root: Root, tmp_path: Path, key: str | None) -> None:
    due_ms = root.now_ms() + 60_000
    staged, ids = stage(root, [b"a"], key=key, due_ms=due_ms)
    committed(root, staged, publish_id=NAME)
    rolled(root, Key.parse(NAME))
    assert told(tmp_path) == [("published", ids[0].text, rfc3339(due_ms))]
