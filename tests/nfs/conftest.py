"""Fixtures: two NFS clients of one server, and an mq at each."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.fuse import check_fuse
from harness.server import Serve
from nfs.mounts import Mount, nfs_mount
from nfs.pairs import Pair, serve_pair


@pytest.fixture(autouse=True)
def _mounts(needs_root: None) -> None:
    """Whatever is here mounts."""
    check_fuse()


@pytest.fixture
def clients(tmp_path: Path) -> Iterator[tuple[Mount, Mount]]:
    """Mounted as the documentation says: without a cache of names that are not there."""
    with nfs_mount(tmp_path, "one") as one, nfs_mount(tmp_path, "other") as other:
        yield one, other


@pytest.fixture
async def pair(clients: tuple[Mount, Mount], serve: Serve) -> Pair:
    return await serve_pair(serve, clients)
