"""The imitation does what an NFS client does, or the tests beside this one mean nothing."""

import errno
import fcntl
import os
from pathlib import Path

import pytest
from harness.processes import eventually
from nfs.mounts import ALWAYS, Mount, nfs_mount


def test_two_clients_see_each_other_s_files(clients: tuple[Mount, Mount]) -> None:
    one, other = clients
    (one.where / "folder").mkdir()
    (one.where / "folder" / "file").write_bytes(b"body")
    assert [path.name for path in (other.where / "folder").iterdir()] == ["file"]
    (other.where / "folder" / "file").rename(other.where / "moved")
    assert (one.where / "moved").read_bytes() == b"body"
    assert not (one.where / "folder" / "file").exists()


def test_a_lock_keeps_the_other_client_out_until_it_is_closed(clients: tuple[Mount, Mount]) -> None:
    one, other = clients
    (one.where / "file").touch()
    with (one.where / "file").open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for client in clients:
            with (client.where / "file").open("r+") as late, pytest.raises(BlockingIOError):
                fcntl.flock(late, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def is_free() -> bool:
        with (other.where / "file").open("r+") as late:
            try:
                fcntl.flock(late, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    eventually(is_free, "the end of the lock")


@pytest.mark.parametrize("done", [False, True])
def test_a_rename_is_answered_wrongly_done_or_not(clients: tuple[Mount, Mount], done: bool) -> None:
    one, other = clients
    (one.where / "a").write_bytes(b"body")
    one.arm("rename", errno.ENOENT, where="a", done=done)
    with pytest.raises(FileNotFoundError):
        (one.where / "a").rename(one.where / "b")
    for client in clients:
        assert (client.where / "b").exists() == done
        assert (client.where / "a").exists() != done
    assert one.hits() == {"lost rename" if done else "ENOENT rename": 1}
    assert other.hits() == {}


def test_lost_replies_of_what_makes_and_takes_names(clients: tuple[Mount, Mount]) -> None:
    where = clients[0].where
    clients[0].tell("at_rates", lost=1.0, seed=1)
    with pytest.raises(FileExistsError):
        (where / "folder").mkdir()
    (where / "file").touch()
    with pytest.raises(FileExistsError):
        os.link(where / "file", where / "link")
    assert (where / "file").stat().st_nlink == 2
    with pytest.raises(FileNotFoundError):
        (where / "link").unlink()
    with pytest.raises(FileNotFoundError):
        (where / "folder").rmdir()
    assert [path.name for path in where.iterdir()] == ["file"]


def test_a_stale_handle_of_each_kind(clients: tuple[Mount, Mount]) -> None:
    one, other = clients
    (one.where / "file").write_bytes(b"body")
    for call, ask in (("getattr", os.stat), ("open", _open)):
        one.arm(call, errno.ESTALE)  # Linux tries again by itself.
        ask(one.where / "file")
        one.arm(call, errno.ESTALE, times=ALWAYS)
        with pytest.raises(OSError, match="Stale"):
            ask(one.where / "file")
        one.heal()
    with (one.where / "file").open("rb") as file:
        one.arm("fsync", errno.ESTALE)
        with pytest.raises(OSError, match="Stale"):
            os.fsync(file.fileno())
        (other.where / "file").unlink()
        with pytest.raises(OSError, match="Stale"):
            os.pread(file.fileno(), 4, 0)


def test_a_file_that_is_open_keeps_a_name_until_it_is_closed(clients: tuple[Mount, Mount]) -> None:
    one, other = clients
    for body, take in ((b"unlinked", Path.unlink), (b"replaced", _replace)):
        (one.where / "file").write_bytes(body)
        with (one.where / "file").open("rb") as file:
            take(one.where / "file")
            silly = [path.name for path in other.where.iterdir() if path.name.startswith(".nfs")]
            assert len(silly) == 1
            assert os.pread(file.fileno(), 8, 0) == body
        eventually(lambda: not list(other.where.glob(".nfs*")), "the end of the name")


def _open(path: Path) -> None:
    os.close(os.open(path, os.O_RDONLY))


def _replace(path: Path) -> None:
    path.with_name("newer").touch()
    path.with_name("newer").rename(path)


def test_a_name_that_was_not_there_stays_away_until_it_is_looked_for_again(tmp_path: Path) -> None:
    with nfs_mount(tmp_path, "one") as one, nfs_mount(tmp_path, "b", negative_s=3600) as other:
        assert not (other.where / "file").exists()
        (one.where / "file").touch()
        assert not (other.where / "file").exists()
        assert os.listdir(other.where) == ["file"]
        with pytest.raises(FileNotFoundError):
            (other.where / "file").rename(other.where / "elsewhere")
        other.tell("forget")
        assert (other.where / "file").exists()
        assert not (other.where / "own").exists()
        (other.where / "own").touch()
        assert (other.where / "own").exists()


def test_times_are_the_server_s(tmp_path: Path) -> None:
    ahead_ms = 3_600_000
    with nfs_mount(tmp_path, "one", clock_offset_ms=ahead_ms, mtime_step_ns=1000) as one:
        (one.where / "file").touch()
        found, real = (one.where / "file").stat(), (tmp_path / "server" / "file").stat()
        assert found.st_mtime_ns // 10**6 == real.st_mtime_ns // 10**6 + ahead_ms
        assert found.st_ctime_ns // 10**6 == real.st_ctime_ns // 10**6 + ahead_ms
        os.utime(one.where / "file", ns=(10**18 + 1234, 10**18 + 1234))
        assert (one.where / "file").stat().st_mtime_ns == 10**18 + 1000


def test_a_folder_s_name_leads_where_it_led_until_its_parent_is_opened(tmp_path: Path) -> None:
    with nfs_mount(tmp_path, "one") as one, nfs_mount(tmp_path, "b", keeps_entries=True) as other:
        (one.where / "above" / "folder").mkdir(parents=True)
        (other.where / "file").touch()
        (other.where / "above" / "folder").stat()
        (one.where / "above" / "folder").rename(one.where / "away")
        (one.where / "above" / "folder").mkdir()
        (other.where / "file").rename(other.where / "above" / "folder" / "file")
        assert os.listdir(one.where / "away") == ["file"]
        assert os.listdir(one.where / "above" / "folder") == []
        os.listdir(other.where / "above")
        assert os.listdir(other.where / "above" / "folder") == []


def test_who_renames_a_folder_by_an_old_name_renames_the_one_that_has_it(tmp_path: Path) -> None:
    with nfs_mount(tmp_path, "one") as one, nfs_mount(tmp_path, "b", keeps_entries=True) as other:
        (one.where / "folder").mkdir()
        (other.where / "folder").stat()
        (one.where / "folder").rename(one.where / "away")
        (one.where / "folder").mkdir()
        (one.where / "folder" / "file").touch()
        (other.where / "folder").rename(other.where / "elsewhere")
        assert os.listdir(one.where / "elsewhere") == ["file"]
        # And goes on to take it for the one that it was.
        (other.where / "elsewhere").chmod(0o500)
        assert (one.where / "away").stat().st_mode & 0o777 == 0o500
