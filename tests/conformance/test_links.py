"""Symbolic links where mq expects its own files and folders: nothing that they lead to is opened,
listed, written, renamed or unlinked, whatever is asked and however much time passes.
"""

from pathlib import Path

import pytest
from conformance.exercise import ask_all, end_all, make_room, now, upkeep
from harness.api import assert_works, make_queue
from harness.commands import run_command
from harness.damage.nodes import SECRET, Outside
from harness.messages import new_id
from harness.server import Serve

from mq.model.errors import StartupError

# Those of a group do not stand in each other's way. With a slash behind it: a link to a folder.
NAMES = {
    "queues": (
        "queues/linked/",
        "queues/q/{bucket}/",
        "queues/q/{bucket_before}/",
        "queues/q_SIDELINE/",
        "queues/q/{id},k=night",
    ),
    "below buckets": (
        *("queues/q/{bucket}/{deep}/", "delay/{bucket}/{deep}/", "remove/{bucket}/{deep}/"),
    ),
    "ready": ("queues/q/{id}", "new/q:{id}"),
    "buckets": ("delay/{bucket}/", "remove/{bucket}/"),
    "delayed": ("delay/q:{id}", "deleted/q"),
    "removed": ("remove/q:{id}", "remove/q:{id}.d/", "remove/q:{id}.e/", "remove/c.1:{id}.l/"),
    "keys": ("queues/q/.keys/", "queues/q/.idempotency/", "queues/q/.firings/"),
    "settings": ("settings/q.json", "purged/q", "schedules/q:nightly"),
    "history": ("history/",),
    "history of a queue": ("history/q/",),
    "history of a day": ("history/q/{today}/", "history/q/2020-01-01/"),
    "leases": ("leases/c.1/", "leases/c.1.back/", "leases/c.2.json", "leases/c.lock"),
    "bulk": ("new/.spark/", "journal/x.json", "journal/x.done", "lost/", "crossings/", "archive/"),
    "staged": ("new/.spark/" + "a" * 32 + "/", "archive/enabled.json", "archive/1.names"),
    "upkeep": (
        *("shovels/q.json", "shovels/q.lock", "shovels/q.stop"),
        *("members/a.json", "members/leader.json", "members/refresh", "members/root-id"),
    ),
    "locks": ("deleted/.lock", "schedules/.lock", "members/.lock", "shovels/.lock", "format"),
}


@pytest.fixture
def outside(tmp_path: Path) -> Outside:
    return Outside(tmp_path / "outside")


@pytest.mark.certificate
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
async def test_what_a_link_leads_to_stays_as_it_is(
    serve: Serve, root: Path, outside: Outside, names: tuple[str, ...]
) -> None:
    server = await serve(folder_max=3)
    await make_queue(server)
    await make_queue(server, "other")
    message_id = new_id().text
    outside.lay_out(message_id)
    with upkeep(root) as passing:
        links = [root / now(path, message_id) for path in names]
        for link, path in zip(links, names, strict=True):
            make_room(link)
            link.symlink_to(outside.folder if path.endswith("/") else outside.file)
        with outside.watched():
            replies = []
            for queue in ("q", "linked"):
                replies += await ask_all(server, queue, message_id)
            passing.pass_time()
            for queue in ("q", "linked"):
                replies += await ask_all(server, queue, message_id)
                replies += await end_all(server, queue)
            passing.pass_time()
    assert outside.touched == []
    assert [reply.body for reply in replies if reply.status == 500] == []
    assert [reply.body for reply in replies if SECRET in reply.body] == []
    for link in links:
        if link.is_symlink():
            link.unlink()
    await assert_works(server, "other")


@pytest.mark.parametrize(
    "folder", ["history", "archive", "lost", "crossings", "new/.spark", "settings"]
)
async def test_a_folder_of_the_root_that_is_a_link_is_refused_at_the_start(
    serve: Serve, root: Path, outside: Outside, folder: str
) -> None:
    outside.lay_out(new_id().text)
    (root / folder).parent.mkdir(parents=True)
    (root / folder).symlink_to(outside.folder)
    with outside.watched(), pytest.raises(StartupError, match="which mq does not follow"):
        await serve()
    assert outside.touched == []


@pytest.mark.parametrize("module", ["mq", "mq_mover"])
def test_a_root_that_is_a_link_is_refused_by_name(tmp_path: Path, module: str) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "disk")
    ended = run_command(module, "--root", str(tmp_path / "link"))
    assert ended.returncode == 1
    assert f"to the folder itself, {tmp_path / 'disk'}" in ended.stderr
    assert list((tmp_path / "disk").iterdir()) == []
