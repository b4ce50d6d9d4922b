"""Folders are 0700 and files 0600, whatever the umask of who starts mq lets through."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance.exercise import ask_all, end_all, upkeep
from harness.api import make_queue
from harness.messages import new_id
from harness.server import Serve


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


async def test_all_that_is_made_is_its_owner_s_alone(serve: Serve, root: Path, umask: int) -> None:
    server = await serve(folder_max=3)
    await make_queue(server)
    with upkeep(root) as passing:
        for _ in range(2):
            await ask_all(server, "q", new_id().text)
            passing.pass_time()
        before = _modes(root)
        await end_all(server, "q")
        passing.pass_time()
    for modes in (before, _modes(root)):
        assert {stat.S_IMODE(mode) for mode in modes if stat.S_ISDIR(mode)} == {0o700}
        assert {stat.S_IMODE(mode) for mode in modes if stat.S_ISREG(mode)} == {0o600}


def _modes(root: Path) -> list[int]:
    return [path.lstat().st_mode for path in (root, *root.rglob("*"))]
