"""A real NFS server: histories of clients at two mq on an export of nfs-ganesha, by way of a client
of its own kind, libnfs, served through FUSE; afterwards the rules hold.

MQ_NFS_SEED says which history. Needs nfs-ganesha, nfs-ganesha-vfs and libnfs13.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path
from typing import NamedTuple

import aiohttp
import pytest
from harness.chance import drawn_seed
from harness.clients import QUEUE
from harness.fuse import served
from harness.herd import Cluster
from harness.needs import cannot_run, program
from harness.processes import Process, Processes, processes
from harness.rules import ALWAYS
from harness.waiting import comes_true
from nfs.ganesha import ORDER

_TESTS = Path(__file__).parent.parent

SEED = drawn_seed("MQ_NFS_SEED")
CLIENTS_EACH = 3
# Of clients, after the last lost answer.
OPERATIONS = 150
# mq-mover leaves alone for up to 10 s what is as slow to look at as this file system on a machine
# that is busy.
DRAIN_S = 60.0


class Export(NamedTuple):
    """The server's folder as mounted, and the process that keeps the server."""

    where: Path
    server: Process

    def logged(self, what: str) -> list[str]:
        """Which operations' answers were `lost`; which of those were asked again and `refused`."""
        lines = (line.split() for line in self.server.lines)
        return [words[1] for words in lines if words[:1] == [what]]


Mounted = Callable[[int], Export]


@pytest.fixture
def mounted(tmp_path: Path, daemons: Processes) -> Iterator[Mounted]:
    """Mounts the export of a server so many of whose answers are lost."""
    _check_nfs()
    with processes() as servers, ExitStack() as mounts:

        def mount(losses: int) -> Export:
            path = {"PYTHONPATH": os.pathsep.join(sys.path)}
            server = servers.start("nfs.ganesha", str(tmp_path), str(SEED), str(losses), env=path)
            port = server.wait_for_log(r"listening port=(\d+)").group(1)
            where = served("nfs.libnfs_mount", tmp_path / "mount", port, "/export")
            return Export(mounts.enter_context(where), server)

        yield mount
        daemons.end_all()  # Before the file system that they are on.


def _check_nfs() -> None:
    """Skips the test, or fails it in CI, without the server or the client's library."""
    program("ganesha.nfsd")
    command = [sys.executable, "-c", "import nfs.libnfs as found; found.load()"]
    tried = subprocess.run(command, capture_output=True, text=True, cwd=_TESTS)
    if tried.returncode != 0:
        cannot_run(f"needs libnfs13: {tried.stderr.strip().splitlines()[-1]}")


@pytest.mark.certificate
@pytest.mark.timeout(150)
@pytest.mark.parametrize("losses", [0, 8], ids=["", "lost answers"])
async def test_a_history_on_a_real_server(
    mounted: Mounted, daemons: Processes, losses: int
) -> None:
    print(f"MQ_NFS_SEED={SEED}")
    export = await asyncio.to_thread(mounted, losses)
    cluster = await asyncio.to_thread(Cluster, daemons, export.where / "root", 2)
    over = asyncio.Event()
    count = cluster.recorder.count
    connector = aiohttp.TCPConnector(force_close=True, limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:
        async with session.put(f"{cluster.servers[0].url}/{QUEUE}") as made:
            assert made.status == 201
        clients = cluster.clients(session, SEED, CLIENTS_EACH, hasty=0.1, prompt=0.8)
        running = asyncio.gather(*(client.run(over.is_set) for client in clients))
        for lost in range(losses):
            await comes_true(lambda lost=lost: len(export.logged("refused")) > lost, "a loss")
        until = count() + OPERATIONS
        await comes_true(lambda: count() > until, "some operations more")
        over.set()
        await running
        await cluster.drain(cluster.clients(session, SEED + 1, 2), DRAIN_S)
    history = cluster.history()
    print(f"{len(history.operations)} operations: {len(history.acknowledged)} messages")
    cluster.assert_it_holds(SEED, ALWAYS)
    assert export.logged("lost") == list(islice(cycle(ORDER), losses))
    assert export.logged("refused") == export.logged("lost")
