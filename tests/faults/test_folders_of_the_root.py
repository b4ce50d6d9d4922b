"""A folder of the root goes away under the daemons: every request is answered, and what does not
need the folder is served; all works again when it is back, or after a restart.
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness.api import assert_problem, assert_works, call, delete, fetch, make_queue, post, publish
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.messages import put_entry, put_file
from harness.processes import Processes, eventually
from harness.server import Serve, Server, body_sizes, commit_modes
from harness.waiting import comes_true

from mq.model.clock import SystemClock
from mq.model.errors import StorageFailed
from mq.model.names import MessageId, QueueName
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.opening import open_root
from mq.store.operations.queues import create_queue, retire_delayed, sweep_tombstones
from mq.store.operations.redeliver import Timer, redeliver

FOLDERS = ("new", "queues", "delay", "remove", "deleted", ".")
STORAGE_FAILED = "storage-failed"


def problem_without(folder: str) -> str:
    """Where all of it is missing, the root itself is."""
    return "root-away" if folder == "." else STORAGE_FAILED


@contextmanager
def away(root: Path, folder: str) -> Iterator[None]:
    """The folder is elsewhere for the while."""
    path = root / folder if folder != "." else root
    aside = path.rename(root.with_name("aside"))
    yield
    aside.rename(path)


class Held:
    """A queue with a message that is ready and one that was fetched."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.ready = self.fetched = ""

    async def begin(self) -> None:
        await make_queue(self.server)
        self.fetched = await publish(self.server, b"fetched")
        assert (await fetch(self.server)).id == self.fetched
        self.ready = await publish(self.server, b"ready")


@pytest.fixture
async def held(serve: Serve) -> Held:
    made = Held(await serve())
    await made.begin()
    return made


@pytest.mark.parametrize("folder", FOLDERS)
async def test_a_root_without_a_folder_is_not_ready(
    server: Server, root: Path, folder: str
) -> None:
    with away(root, folder):
        problem = problem_without(folder)
        assert_problem(await call(server, "GET", "/-/readyz"), 503, problem)
    assert (await call(server, "GET", "/-/readyz")).status == 200


@body_sizes
@commit_modes
@pytest.mark.parametrize("folder", ["new", "."])
async def test_a_publish_without_new_is_503(
    serve: Serve, root: Path, folder: str, commit: str, size: int
) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    with away(root, folder):
        assert_problem(await post(server, b"x" * size), 503, problem_without(folder))
        assert_problem(await call(server, "GET", "/-/readyz"), 503, problem_without(folder))
        assert (await call(server, "GET", "/-/livez")).status == 200
    await assert_works(server)
    assert (await call(server, "GET", "/-/readyz")).status == 200
    assert_audits_clean(root)


async def test_a_fetch_without_delay_is_503_and_the_message_stays(held: Held, root: Path) -> None:
    with away(root, "delay"):
        assert_problem(await fetch(held.server), 503, STORAGE_FAILED)
    await comes_true(lambda: is_served(held.server, held.ready), "the message is served")
    assert_audits_clean(root)


async def is_served(server: Server, message_id: str) -> bool:
    return (await fetch(server)).headers.get("X-Message-Id") == message_id


@pytest.mark.parametrize("which", ["ready", "fetched"])
@pytest.mark.parametrize("if_match", [False, True], ids=["", "if-match"])
async def test_a_delete_without_remove_is_503_and_can_be_said_again(
    held: Held, root: Path, which: str, if_match: bool
) -> None:
    message_id = getattr(held, which)
    headers = {"If-Match": f'"{int(which == "fetched")}"'} if if_match else {}
    with away(root, "remove"):
        assert_problem(await delete(held.server, message_id, headers=headers), 503, STORAGE_FAILED)
    assert (await delete(held.server, message_id, headers=headers)).status == 202
    assert_audits_clean(root)


@pytest.mark.parametrize("folder", ["remove", "deleted"])
async def test_deleting_a_queue_without_its_folders_is_503(
    held: Held, root: Path, folder: str
) -> None:
    with away(root, folder):
        assert_problem(await call(held.server, "DELETE", "/q"), 503, STORAGE_FAILED)
    assert (await call(held.server, "DELETE", "/q")).status == 200
    await comes_true(lambda: not list((root / "delay").iterdir()), "delay/ is empty")
    assert_audits_clean(root)


@pytest.mark.parametrize("folder", ["queues", "deleted", "."])
async def test_making_a_queue_without_its_folders_is_503(
    held: Held, root: Path, folder: str
) -> None:
    with away(root, folder):
        assert_problem(await call(held.server, "PUT", "/another"), 503, problem_without(folder))
    assert (await call(held.server, "PUT", "/another")).status == 201
    await assert_works(held.server, "another")
    assert_audits_clean(root)


async def test_a_deleted_queues_messages_stay_out_of_reach_without_remove(
    held: Held, root: Path
) -> None:
    """What could not be retired must not turn up in a new queue of the name."""
    delayed = root / "delay" / f"q:{held.fetched}"
    aside = delayed.rename(root.with_name("aside-message"))
    assert (await call(held.server, "DELETE", "/q")).status == 200
    aside.rename(delayed)
    with away(root, "remove"):
        assert_problem(await call(held.server, "PUT", "/q"), 503, STORAGE_FAILED)
    assert (await call(held.server, "PUT", "/q")).status == 201
    assert list((root / "delay").iterdir()) == []
    assert_audits_clean(root)


def test_without_queues_nothing_counts_as_of_a_deleted_queue(root: Path) -> None:
    """A deletion that was never answered has left its tombstone beside the queue."""
    opened = open_root(str(root), Files(), FakeClock())
    queue = QueueName.parse("q")
    run_alone(create_queue(opened, queue), NoFlusher())
    delayed = put_entry(root / "delay", "q", due_ms=1_000)
    put_file(root / "deleted" / "q")
    message_id = MessageId.parse(delayed.name.partition(":")[2])
    with away(root, "queues"):
        for operation in (
            redeliver(opened, queue, message_id, Timer()),
            sweep_tombstones(opened),
            create_queue(opened, queue),
        ):
            with pytest.raises(StorageFailed):
                run_alone(operation, NoFlusher())
        with pytest.raises(StorageFailed):
            retire_delayed(opened, queue)
    assert delayed.exists()


@pytest.mark.parametrize("folder", FOLDERS)
async def test_every_request_is_answered_without_a_folder_and_works_with_it(
    held: Held, root: Path, folder: str
) -> None:
    server = held.server
    with away(root, folder):
        replies = [
            await post(server),
            await call(server, "GET", "/q"),
            await call(server, "PUT", "/q"),
            await call(server, "PUT", "/another"),
            await call(server, "DELETE", "/missing"),
            await delete(server, held.fetched),
            await fetch(server),
            await call(server, "GET", "/-/readyz"),
        ]
        # Without queues/ nobody knows what is there: not even a queue that never was is not found.
        unsure = {503} if folder in ("queues", ".") else {404, 503}
        assert {reply.status for reply in replies} <= {200, 201, 202, 204} | unsure
        assert (await call(server, "GET", "/-/livez")).status == 200
    await make_queue(server)
    await make_queue(server, "another")
    await assert_works(server, "another")
    assert (await call(server, "GET", "/-/readyz")).status == 200
    assert_audits_clean(root)


@pytest.mark.parametrize("folder", FOLDERS)
async def test_a_restart_makes_what_is_missing(serve: Serve, root: Path, folder: str) -> None:
    server = await serve()
    await make_queue(server)
    await publish(server)
    shutil.rmtree(root if folder == "." else root / folder)
    again = await serve()
    await make_queue(again)
    while (await fetch(again)).status == 200:
        continue
    await assert_works(again)
    assert_audits_clean(root)


@pytest.mark.certificate
def test_mover_and_reaper_outlive_missing_folders(daemons: Processes, root: Path) -> None:
    daemons.mq(root).kill()
    mover, reaper = daemons.mover("--root", str(root)), daemons.reaper("--root", str(root))
    for folder in FOLDERS:
        with away(root, folder):
            failed = {"delay": [mover], "remove": [reaper], ".": [mover, reaper]}
            for daemon in failed.get(folder, []):
                daemon.lines.clear()
                daemon.wait_for_log("a pass failed")
    (root / "queues" / "q").mkdir(mode=0o700)
    due = put_entry(root / "delay", "q", b"due", SystemClock().now_ms(), receives=1)
    gone = put_entry(root / "remove", "q", b"gone")
    eventually(lambda: not due.exists() and not gone.exists(), "redelivered and reaped")
    assert_audits_clean(root)
