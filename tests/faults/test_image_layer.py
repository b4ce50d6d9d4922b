"""A root in a container's image: a folder of a lower layer of overlayfs cannot be renamed."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults.test_mount_away import ask
from harness.folders import message_files, nothing_anywhere
from harness.mounts import run_tool, tmpfs, unmount
from harness.processes import Processes, eventually

pytestmark = [pytest.mark.needs_root, pytest.mark.usefixtures("needs_root")]


@contextlib.contextmanager
def overlay(memory: Path) -> Iterator[Path]:
    """Over the folder `lower`."""
    for name in ("upper", "work", "merged"):
        (memory / name).mkdir()
    folders = ",".join(f"{name}dir={memory / name}" for name in ("lower", "upper", "work"))
    run_tool("mount", "-t", "overlay", "-o", folders, "overlay", str(memory / "merged"))
    try:
        yield memory / "merged"
    finally:
        unmount(memory / "merged")


@pytest.mark.parametrize("folder_max", ["10000", "2"], ids=["flat", "buckets"])
def test_a_queue_of_a_lower_layer_is_deleted_and_made_again(
    daemons: Processes, tmp_path: Path, folder_max: str
) -> None:
    flags = ("--folder-max", folder_max)
    with tmpfs(tmp_path / "memory", "size=64m") as memory:
        (memory / "lower").mkdir()
        image = daemons.mq(memory / "lower" / "root", *flags)
        assert ask(image, "PUT", "/orders")[0] == 201
        for number in range(7):
            assert ask(image, "POST", "/orders/messages", b"%d" % number)[0] == 201
        assert ask(image, "POST", "/orders/messages?key=k&delay=600", b"keyed")[0] == 201
        assert ask(image, "GET", "/orders/messages")[0] == 200
        image.terminate()
        with overlay(memory) as merged:
            root = merged / "root"
            mq = daemons.mq(root, "--standalone", *flags)
            mq.wait_for_log("the root goes with its container")
            assert ask(mq, "DELETE", "/orders")[0] == 200
            assert ask(mq, "GET", "/orders")[0] == 404
            assert ask(mq, "DELETE", "/orders")[0] == 404
            assert ask(mq, "PUT", "/orders")[0] == 201
            assert ask(mq, "GET", "/orders/messages")[0] == 204
            assert ask(mq, "GET", "/orders/keys/k")[0] == 404
            # mq-reaper unlinks what was deleted.
            eventually(lambda: message_files(root) == nothing_anywhere(), "all is unlinked")
            assert ask(mq, "POST", "/orders/messages?key=k", b"new")[0] == 201
            assert ask(mq, "GET", "/orders/messages") == (200, b"new")
            daemons.end_all()


def test_a_queue_of_a_lower_layer_is_purged(daemons: Processes, tmp_path: Path) -> None:
    with tmpfs(tmp_path / "memory", "size=64m") as memory:
        (memory / "lower").mkdir()
        image = daemons.mq(memory / "lower" / "root", "--folder-max", "2")
        assert ask(image, "PUT", "/orders")[0] == 201
        for number in range(7):
            assert ask(image, "POST", "/orders/messages", b"%d" % number)[0] == 201
        image.terminate()
        with overlay(memory) as merged:
            mq = daemons.mq(merged / "root", "--standalone", "--folder-max", "2")
            assert ask(mq, "DELETE", "/orders/messages")[0] == 202
            assert ask(mq, "GET", "/orders/messages")[0] == 204
            root = merged / "root"
            eventually(lambda: message_files(root) == nothing_anywhere(), "all is unlinked")
            assert mq.logged("a pass failed") is None
            daemons.end_all()
