"""The page's commands for backups: what they copy is the root, with all that its files say."""

import os
import subprocess
from pathlib import Path

import pytest
from harness.commands import run_command
from harness.mounts import mounted, run_tool
from harness.needs import program
from harness.pages import section
from harness.processes import Processes, eventually

from mq import Client
from mq.client.errors import Unavailable

PAGE = section("deploy/OPERATE.md", "Backups")
COMMANDS = [
    line.partition("  #")[0].strip()
    for block in PAGE.split("```sh\n")[1:]
    for line in block.partition("```")[0].splitlines()
]


def commands(*programs: str) -> list[str]:
    """Those of the page with one of these programs, in order."""
    return [each for each in COMMANDS if each.split()[0] in programs]


def shell(lines: list[str], **variables: Path) -> None:
    env = os.environ | {name: str(value) for name, value in variables.items()}
    subprocess.run(["sh", "-eu", "-c", "\n".join(lines)], env=env, check=True)


def is_said(root: Path) -> dict[str, tuple[int, str]]:
    """What the files of a root say: by path, mtime and content, or a link's target."""
    return {
        str(path.relative_to(root)): (
            0 if path.is_symlink() else path.stat().st_mtime_ns,
            os.readlink(path) if path.is_symlink() else path.read_bytes().decode("latin-1"),
        )
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def fill(url: str) -> None:
    """Messages in all states: with receives, reasons, keys and due times."""
    with Client(url) as client:
        orders = client.queue("orders")
        orders.create()
        orders.publish_many([b"%d" % number for number in range(20)])
        for _ in range(3):
            orders.fetch().release(reason="not now")
        orders.fetch().sideline("rejected")
        orders.fetch(visibility_s=600)
        orders.publish("later", delay_s=600, key="k")


@pytest.fixture
def filled(daemons: Processes, root: Path) -> Path:
    """A root that no daemon has any more."""
    mq = daemons.mq(root)
    fill(mq.url)
    mq.terminate()
    return root


def assert_restored(root: Path, restored: Path) -> None:
    assert is_said(restored) == is_said(root)
    checked = run_command("mq.tools.mqctl", "fsck", str(restored))
    assert checked.returncode == 0, checked.stdout


def test_cp(filled: Path, tmp_path: Path) -> None:
    shell([f"mkdir {tmp_path}/b", *commands("cp")], root=filled, backup=tmp_path / "b")
    assert_restored(filled, tmp_path / "b" / "copy")


def test_tar(filled: Path, tmp_path: Path) -> None:
    restored = tmp_path / "restored"
    lines = [f"mkdir {tmp_path}/b", "umask 077"]
    lines += [each for each in commands("tar", "mkdir") if "-c" in each]
    lines += [each for each in commands("mkdir", "tar") if "-c" not in each]
    shell(lines, root=filled, backup=tmp_path / "b", restored=restored)
    assert_restored(filled, restored)


@pytest.mark.certificate
def test_rsync_while_daemons_run_and_again(daemons: Processes, root: Path, tmp_path: Path) -> None:
    program("rsync")
    first, second = commands("rsync")
    mq = daemons.mq(root, "--standalone")
    fill(mq.url)
    backup = tmp_path / "b"
    backup.mkdir()
    shell([first], root=root, backup=backup)
    with Client(mq.url) as client:
        orders = client.queue("orders")
        orders.fetch().delete()
        orders.fetch().release()
        orders.publish("since")
    mq.terminate()
    shell([second], root=root, backup=backup)
    assert_restored(root, backup / "rsync")


@pytest.mark.needs_root
@pytest.mark.usefixtures("needs_root")
def test_a_snapshot_while_daemons_run(daemons: Processes, tmp_path: Path) -> None:
    for each in ("mkfs.btrfs", "btrfs"):
        program(each)
    run_tool("truncate", "--size", "400M", str(tmp_path / "image"))
    run_tool("mkfs.btrfs", "-q", str(tmp_path / "image"))
    with mounted(tmp_path / "image", tmp_path / "disk", "loop") as disk:
        root = disk / "root"
        run_tool("btrfs", "subvolume", "create", str(root))
        root.chmod(0o700)
        mq = daemons.mq(root, "--standalone")
        fill(mq.url)
        shell(commands("btrfs"), root=root, backup=disk)
        said = is_said(disk / "snapshot")
        restored = tmp_path / "restored"
        shell([f"cp -a {disk}/snapshot {restored}"])
        daemons.end_all()
    assert sum(path.startswith("queues/orders/") for path in said) >= 14
    again = daemons.mq(restored, "--standalone")
    with Client(again.url) as client:
        ready = {each.body for each in client.queue("orders").peek(count=100)}
        assert {b"%d" % number for number in range(5, 20)} <= ready


@pytest.mark.parametrize(
    ("copying", "said"),
    [
        ("tar -C $root -cf - . | tar -C $copy -xpf -", "whole seconds"),
        ("cp -r $root/. $copy", "of them"),
    ],
    ids=["tar", "cp"],
)
def test_fsck_names_a_root_whose_copy_has_lost_its_mtimes(
    filled: Path, tmp_path: Path, copying: str, said: str
) -> None:
    shell(["umask 077", "mkdir $copy", copying], root=filled, copy=tmp_path / "copy")
    checked = run_command("mq.tools.mqctl", "fsck", str(tmp_path / "copy"))
    assert checked.returncode == 5
    assert "a root whose mtimes are not mq's: a copy lost them" in checked.stdout
    assert said in checked.stdout


def test_a_root_that_is_put_back_is_served_by_daemons_that_start_again(
    daemons: Processes, root: Path, tmp_path: Path
) -> None:
    """Those that run know another root."""
    mq = daemons.mq(root)
    fill(mq.url)
    shell(commands("cp"), root=root, backup=tmp_path)
    root.rename(tmp_path / "gone")
    (tmp_path / "copy").rename(root)
    with Client(mq.url) as client, pytest.raises(Unavailable, match="root"):
        client.queue("orders").publish("hidden")
    mq.kill()
    again = daemons.mq(root)
    with Client(again.url) as client:
        eventually(lambda: client.queue("orders").publish("seen"), "it is served")
