"""`mqctl upgrade`: the daemons refuse a root of an older format, and serve it afterwards."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from harness.clock import FakeClock
from harness.commands import run_command
from harness.folders import make_root
from harness.old_format import make_old
from harness.processes import Processes

from mq import Client
from mq.client.errors import KeyTaken
from mq.model.members import Doing
from mq.store.disk.files import Files
from mq.store.format.layout import Layout
from mq.store.members.files import MemberFile
from mq.store.opening import root_of
from mq.tools.fsck.command import upgrade


def run(*arguments: object) -> Result:
    return CliRunner().invoke(upgrade, [*map(str, arguments)])


def test_the_daemons_refuse_a_root_until_it_is_converted(daemons: Processes, root: Path) -> None:
    mq = daemons.mq(root)
    with Client(mq.url) as client:
        client.queue("orders").create()
        message_id = client.queue("orders").publish(b"x", key="night", group="table-7")
        [message] = client.queue("orders").fetch_many(1)
        message.release()
    assert mq.terminate() == 0
    make_old(root)
    for module in ("mq", "mq_mover", "mq_reaper"):
        ended = run_command(module, "--root", str(root))
        assert ended.returncode == 1
        assert f"run: mqctl upgrade {root}" in ended.stderr
    done = run(root)
    assert (done.exit_code, done.output) == (
        0,
        f"{root} was mq 1: 3 folders of keys moved, 0 of deleted queues removed\n",
    )
    assert run(root).output == f"{root} has this mq's format\n"
    with Client(daemons.mq(root).url) as client:
        queue = client.queue("orders")
        with pytest.raises(KeyTaken):
            queue.publish(b"y", key="night")
        [head] = queue.groups()
        assert (head.id, queue.read_key("night").body) == (message_id, b"x")


def test_a_root_where_a_daemon_was_at_work_is_refused(root: Path) -> None:
    make_root(root)
    make_old(root)
    member = MemberFile(root_of(Layout.of(root), Files(), FakeClock()), "mq-mover-1")
    member.tell(Doing("file"))
    done = run(root)
    assert done.exit_code == 1
    assert "mq-mover-1 on " in done.output
    assert (root / "format").read_text() == "mq 1\n"
    assert run(root, "--force").exit_code == 0


def test_what_is_no_root_is_refused(tmp_path: Path) -> None:
    for name, says in (("nowhere", "there is no such folder"), ("", "is not an mq root")):
        done = run(tmp_path / name)
        assert done.exit_code == 1
        assert says in done.output
    assert os.listdir(tmp_path) == []
