"""What `--coordinator` may say."""

import errno
import sys
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.faults import FaultyFiles

from mq.coordination.coordinator import Alone
from mq.coordination.file import FileCoordinator
from mq.coordination.opening import open_coordinator, root_id
from mq.coordination.zookeeper import ZooKeeperCoordinator
from mq.coordination.zookeeper_address import Address, Nodes
from mq.model.errors import StartupError
from mq.store.core.root import Root
from mq.store.disk.files import Files
from mq.store.opening import open_root


@pytest.fixture
def opened(root: Path) -> Root:
    return open_root(str(root), Files(), FakeClock())


def test_the_kinds(opened: Root) -> None:
    assert isinstance(open_coordinator("file", opened, "a"), FileCoordinator)
    assert isinstance(open_coordinator("alone", opened, "a"), Alone)
    made = open_coordinator("zookeeper://nowhere.invalid:2181", opened, "a")
    assert isinstance(made, ZooKeeperCoordinator)


@pytest.mark.parametrize("text", ["", "File", "zookeeper", "zookeeper:", "etcd://x", "file://x"])
def test_another_is_told_which_there_are(opened: Root, text: str) -> None:
    with pytest.raises(
        StartupError, match=r"use (file, alone, or )?zookeeper://HOST:PORT|use file"
    ):
        open_coordinator(text, opened, "a")


@pytest.mark.parametrize("member", ["", ".", "a/b", "-a", "ä", "a" * 101, "a b", "a\n"])
def test_a_member_has_a_name_that_a_file_can_have(opened: Root, member: str) -> None:
    with pytest.raises(StartupError, match="is not a member name"):
        open_coordinator("file", opened, member)


def test_without_kazoo_the_way_to_it_is_said(opened: Root, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mq.coordination.zookeeper")
    for name in [each for each in sys.modules if each.partition(".")[0] == "kazoo"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [each for each in sys.path if "site-packages" not in each])
    with pytest.raises(StartupError, match=r"pip install 'mq\[zookeeper\]'"):
        open_coordinator("zookeeper://127.0.0.1", opened, "a")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("zookeeper://h", Address("h")),
        ("zookeeper://h:2181/", Address("h:2181")),
        ("zookeeper://a:1,b:2,[::1]:3/x/y", Address("a:1,b:2,[::1]:3", "/x/y")),
        ("zookeeper://h?client=shop", Address("h", client="shop")),
        (
            "zookeeper://h/x?auth=digest:u:p%26:q&timeout=4.5",
            Address("h", "/x", credentials="u:p&:q", session_s=4.5),
        ),
    ],
)
def test_addresses(text: str, address: Address) -> None:
    assert Address.parse(text) == address


@pytest.mark.parametrize(
    "text",
    [
        "zookeeper://",
        "zookeeper:///x",
        "zookeeper://h:0",
        "zookeeper://h:65536",
        "zookeeper://h:x",
        "zookeeper://h,",
        "zookeeper://u:secret@h",
        "zookeeper://h/x y",
        "zookeeper://h/../x",
        "zookeeper://h//x",
        "zookeeper://h#x",
        "zookeeper://h?client=",
        "zookeeper://h?client=a/b",
        "zookeeper://h?client=a&client=b",
        "zookeeper://h?clients=a",
        "zookeeper://h?auth=secret",
        "zookeeper://h?auth=sasl:u:secret",
        "zookeeper://h?timeout=0",
        "zookeeper://h?timeout=nan",
        "zookeeper://h?timeout=inf",
        "zookeeper://h?timeout=x",
        "zookeeper://h?x",
        "zookeeper://[::1",
    ],
)
def test_bad_addresses_are_told_what_is_right_and_nothing_secret(text: str) -> None:
    with pytest.raises(StartupError, match="use zookeeper://HOST:PORT") as raised:
        Address.parse(text)
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(Address("h", credentials="u:secret"))


def test_nodes_are_the_originals() -> None:
    nodes = Nodes.of("/pre", "shop")
    assert nodes.leader == "/pre/shop-ignis-workers/shop/loadbalancer-leader"
    assert nodes.member("a") == "/pre/shop-ignis-workers/shop/members/a"
    assert nodes.told("a") == "/pre/shop-ignis-workers/shop/communicator/a"


def test_a_root_has_one_name_which_no_other_has(opened: Root, tmp_path: Path) -> None:
    other = open_root(str(tmp_path / "other"), Files(), FakeClock())
    assert root_id(opened) == root_id(opened) != root_id(other)


@pytest.mark.parametrize("says", ["", "x", "mq-0"])
def test_something_else_in_its_place_is_left_alone(opened: Root, says: str) -> None:
    path = Path(opened.layout.members) / "root-id"
    if says:
        path.symlink_to(says)
    else:
        path.touch()
    with pytest.raises(StartupError, match="root-id must be the symbolic link"):
        root_id(opened)


def test_a_roots_name_is_on_stable_media_before_it_is_used(root: Path) -> None:
    files = FaultyFiles()
    opened = open_root(str(root), files, FakeClock())
    files.calls.clear()
    root_id(opened)
    made = [call for call, path in files.calls if "members" in path and call != "linked"]
    assert made == ["link", "sync_folder"]
    files.fail("sync_folder", errno.EIO, "members", times=1)
    with pytest.raises(OSError, match="Input/output"):
        root_id(opened)


def test_of_two_that_name_a_root_one_does(root: Path) -> None:
    """Or the answer of the one that did was lost."""
    files = FaultyFiles()
    opened = open_root(str(root), files, FakeClock())
    files.fail("link", errno.EEXIST, "members", times=1, performed=True)
    assert root_id(opened) == root_id(opened)
