"""The bare protocol does what PROTOCOL.md says, however it flushes."""

from pathlib import Path

import pytest

from deploy.bench.ceiling import BODY, Commit
from deploy.bench.serial import Serial
from mq.model.message import Stamp


def files(root: Path) -> dict[str, list[str]]:
    found = {}
    for folder in ("new", "queues/q", "delay", "remove"):
        if names := sorted(path.name for path in (root / folder).iterdir()):
            found[folder] = names
    return found


@pytest.mark.parametrize("commit", ["fsync", "syncfs", "none"])
def test_a_message_goes_its_way(tmp_path: Path, commit: Commit) -> None:
    root = tmp_path / "root"
    serial = Serial(root, commit)
    serial.publish("m")
    assert files(root) == {"queues/q": ["m"]}
    published = Stamp.from_mtime_ns((root / "queues/q/m").stat().st_mtime_ns)
    assert serial.fetch("m") == BODY
    assert files(root) == {"delay": ["q:m"]}
    fetched = Stamp.from_mtime_ns((root / "delay/q:m").stat().st_mtime_ns)
    assert fetched.due_ms > published.due_ms
    serial.delete("m")
    assert files(root) == {"remove": ["q:m"]}
