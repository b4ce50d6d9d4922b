"""Whether the root that was opened is at its path."""

import errno
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles
from harness.folders import make_root

from mq.model.errors import RootAway, StartupError
from mq.store.core.presence import Identity
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.format.layout import Layout
from mq.store.opening import known_root, open_root, open_trusted_root


@pytest.fixture
def opened(root: Path) -> Root:
    return open_root(str(root), Files(), FakeClock())


def away(opened: Root) -> bool:
    try:
        opened.presence.check()
    except RootAway:
        assert opened.presence.is_away
        return True
    assert not opened.presence.is_away
    return False


def test_a_root_is_away_while_nothing_or_another_is_in_its_place(
    opened: Root, root: Path, tmp_path: Path
) -> None:
    assert not away(opened)
    root.rename(tmp_path / "aside")
    assert away(opened)
    root.mkdir()
    assert away(opened)
    root.rmdir()
    make_root(root)
    assert away(opened)
    root.rename(tmp_path / "another")
    (tmp_path / "aside").rename(root)
    assert not away(opened)


def test_a_root_whose_device_has_another_number_is_the_same(opened: Root, root: Path) -> None:
    """As a mount that came back may have."""
    known = Identity.of(Layout.of(root), Files())
    assert known is not None
    moved = Identity(known.device + 1, known.folder, known.queues, known.made_ns)
    assert moved.is_of(known)
    for other in (
        Identity(moved.device, known.folder + 1, known.queues, known.made_ns),
        Identity(moved.device, known.folder, known.queues + 1, known.made_ns),
        Identity(moved.device, known.folder, known.queues, known.made_ns + 1),
    ):
        assert not other.is_of(known)
    assert Identity.parse(str(known)) == known


def test_a_mount_whose_server_has_ended_is_away(root: Path) -> None:
    files = FaultyFiles()
    opened = open_root(str(root), files, FakeClock())
    files.fail("status", errno.ENOTCONN)
    assert away(opened)
    files.heal()
    assert not away(opened)


def test_a_disk_that_fails_is_not_away(root: Path) -> None:
    files = FaultyFiles()
    opened = open_root(str(root), files, FakeClock())
    files.fail("status", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        opened.presence.check()
    opened.presence.look()
    assert not opened.presence.is_away


def test_only_what_may_make_a_root_makes_one(root: Path, tmp_path: Path) -> None:
    with pytest.raises(StartupError, match="there is no root at"):
        open_trusted_root(str(root), Files(), FakeClock(), makes=False)
    assert not root.exists()
    known = open_trusted_root(str(root), Files(), FakeClock(), makes=True).presence.known
    assert open_trusted_root(
        str(root), Files(), FakeClock(), makes=False, known=known_root(str(known))
    )
    other = make_root(tmp_path / "other")
    with pytest.raises(StartupError, match="another root is at"):
        open_trusted_root(str(other), Files(), FakeClock(), makes=False, known=known)
    with pytest.raises(StartupError, match="--attach"):
        known_root("a-b")
