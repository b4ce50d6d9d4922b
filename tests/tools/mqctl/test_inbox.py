"""A folder that takes messages: what is there whatever fails, and after the power was cut."""

import asyncio
import errno
import io
from pathlib import Path

import pytest
from crash.legal_states import Model
from crash.trees import left_behind
from harness.faults import FaultyFiles
from harness.logged_files import LoggedFiles
from harness.server import Serve

from mq.client.client import AsyncClient
from mq.store.disk.files import Files
from mq.tools.mqctl.inbox import BadFileName, Inbox
from mq.tools.mqctl.options import Options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.receiving import Receiving, Wanted

A = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab,p=9,k=nightly.json"
B = "0192f3a2-7c4e-7d2a-9b1e-0123456789ac"
FIRST = {A: b"one " * 2000, B: b"two"}
AGAIN = {A: b"one " * 2000, B: b""}
ALL = Wanted(count=5, ack=True)


def test_what_was_kept_survives_every_power_cut(tmp_path: Path) -> None:
    files = LoggedFiles(tmp_path)
    inbox = Inbox(tmp_path / "inbox", files)
    inbox.open()
    for messages in (FIRST, AGAIN):
        inbox.keep(list(messages.items()))
        files.mark("kept")
    log = files.log
    cuts = 0
    for model in Model:
        for kept, tree in left_behind(log, model):
            cuts += 1
            found = {path.removeprefix("/inbox/"): file for path, file in tree.items()}
            for name, body in (FIRST, AGAIN)[kept - 1].items() if kept else ():
                file = found.get(name)
                assert file is not None, f"{model.name}: {name} is lost"
                # The second round's bodies may have come already.
                assert file.data in (body, FIRST[name], AGAIN[name]), f"{model.name}: {name}"
            for name, file in found.items():
                if name in FIRST:
                    assert file is not None
                    assert file.data in (FIRST[name], AGAIN[name]), f"{model.name}: {name} is torn"
    assert cuts > 50


def test_a_name_that_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path / "inbox", Files())
    inbox.open()
    for name in ("../out", "a/b", ".hidden", "", "a\0b", "a" * 256):
        with pytest.raises(BadFileName):
            inbox.keep([(name, b"x")])
    assert list((tmp_path / "inbox").iterdir()) == []


@pytest.mark.parametrize("call", ["create", "write", "sync", "rename", "sync_folder"])
async def test_nothing_is_deleted_that_could_not_be_kept(
    serve: Serve, tmp_path: Path, call: str
) -> None:
    """The first of two goes well: neither counts as kept before both do."""
    server = await serve()
    files = FaultyFiles()
    inbox = Inbox(tmp_path / "inbox", files)
    inbox.open()
    async with AsyncClient(server.url) as client:
        queue = client.queue("orders")
        await queue.create()
        ids = [await queue.publish(b"one"), await queue.publish(b"two")]
        out = io.StringIO()
        receiving = Receiving(queue, ALL, inbox, Printer(False, out), Options())
        files.fail(call, errno.EIO, after=0 if call == "sync_folder" else 1)
        with pytest.raises(OSError, match="Input/output error"):
            await receiving.run()
        assert out.getvalue() == ""
        states = [message.state for message in await queue.peek(states=("ready", "delayed"))]
        assert states == ["ready", "ready"]
        files.heal()
        await Receiving(queue, ALL, inbox, Printer(False, out), Options()).run()
        assert await queue.peek(states=("ready", "delayed")) == []
    kept = {path.name: path.read_bytes() for path in (tmp_path / "inbox").iterdir()}
    assert kept == dict(zip(ids, (b"one", b"two"), strict=True))
    assert out.getvalue().split() == [str(tmp_path / "inbox" / each) for each in ids]


async def test_what_is_deleted_was_flushed_before(serve: Serve, tmp_path: Path) -> None:
    server = await serve()
    files = FaultyFiles()
    inbox = Inbox(tmp_path / "inbox", files)
    inbox.open()
    async with AsyncClient(server.url) as client:
        queue = client.queue("orders")
        await queue.create()
        await queue.publish(b"one")
        gate = files.hold("sync_folder", "inbox")
        # The gate stops the loop that it is in: so it is in a thread with a loop of its own.
        waiting = asyncio.to_thread(_received, server.url, inbox)
        task = asyncio.ensure_future(waiting)
        assert await asyncio.to_thread(gate.reached.wait, 30)
        assert len(await queue.peek(states=("delayed",))) == 1
        gate.open()
        await task
        assert await queue.peek(states=("ready", "delayed")) == []


def _received(url: str, inbox: Inbox) -> None:
    async def receive() -> None:
        async with AsyncClient(url) as client:
            printer = Printer(False, io.StringIO())
            await Receiving(client.queue("orders"), ALL, inbox, printer, Options()).run()

    asyncio.run(receive())
