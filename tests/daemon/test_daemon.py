"""What mq says of its root when it starts."""

import pytest
from harness.server import Serve

from mq.store.disk.mounts import FileSystem

WARNING = "a power cut may lose messages on this file system"


@pytest.mark.parametrize(
    ("kind", "durability", "warns"),
    [("exfat", "media", True), ("xfs", "media", False), ("tmpfs", "none", False)],
)
async def test_a_file_system_whose_order_is_not_known_is_told_of(
    serve: Serve,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    durability: str,
    warns: bool,
) -> None:
    monkeypatch.setattr("mq.daemon.daemon.file_system_of", lambda _: FileSystem(kind, "/"))
    await serve(durability=durability, force=True)
    assert (WARNING in caplog.text) == warns
