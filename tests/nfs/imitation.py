"""The process that serves a folder through FUSE as an NFS client would (see `mounts.py`).

    python -m nfs.imitation MOUNT_POINT FOLDER CONTROL_SOCKET OPTIONS

Two of them over one folder are two clients of one server. What applications see of NFS here:

- lost replies and stale handles (`faults.py`); what another client unlinked is stale when open;
- a file that is open here when its name goes keeps a `.nfs` name until it is closed;
- a name that was looked for in vain is not there for a while, though another client makes it;
- what a folder's times and names were is told again for a while, though another client changed it;
  what this client changes itself it sees at once, and its listing is never older than its times;
- a folder's name leads to the folder that it led to before, though another client moved that away
  and made another one: files are read, made and renamed there. Each name is the server's all the
  same: who renames such a folder renames the one that has the name now;
- times of the server's clock, and mtimes as coarse as the server's file system keeps them;
- flock works between the clients, as it does from NFS 4 on.

Attributes of files are always fresh, as NFS's are after an open and a lock. One request is served
at a time. Nothing is flushed: the server stays up. Ends when it is unmounted.
"""

import contextlib
import errno
import fcntl
import itertools
import json
import os
import socketserver
import stat
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import mfusepy  # type: ignore[import-untyped]
from nfs.faults import Faults


@dataclass
class Opened:
    """An open file: its path as the kernel knows it, and where its `.nfs` name lies."""

    path: str
    inode: int
    silly: tuple[int, str] | None = None
    """An open folder, which may be renamed, and the name in it."""


@dataclass
class Options:
    """What kind of server and client it is."""

    mtime_step_ns: int = 1
    clock_offset_ms: int = 0
    """How far the server's clock is ahead of this machine's."""
    negative_s: float = 0.0
    """How long a name that was not there is not looked for again."""
    folder_looks: int = 0
    """How often a folder's times and names are told again before the server is asked."""
    keeps_entries: bool = False
    """Whether a folder's name leads where it led, until this client opens its parent."""
    trusts_parents: bool = False
    """Whether it does so also then, until this client changes the parent: the server's times were
    too coarse to tell that another has.
    """
    own_times_step_ns: int = 1
    """How coarse the times are that the server sets by its own clock: not those that it is told."""


@dataclass
class Kept:
    """A folder as this client last saw it, and how often it is still believed."""

    facts: dict[str, Any]
    looks: int
    names: list[tuple[str, dict[str, int], int]] | None = None


class Client(mfusepy.Operations):  # type: ignore[misc]
    """The calls that mq makes; a file's handle is its descriptor."""

    use_ns = True
    flag_nopath = flag_nullpath_ok = True

    def __init__(self, folder: str, options: Options) -> None:
        self.faults = Faults()
        self._folder = folder
        self._options = options
        self._offset_ns = options.clock_offset_ms * 1_000_000
        self._opened: dict[int, Opened] = {}
        self._missing: dict[str, float] = {}
        self._kept: dict[str, Kept] = {}
        self._leads: dict[str, int] = {}
        """The folders that names lead to, as open descriptors."""
        self._listed: dict[int, str] = {}
        """The paths of folders that are open."""
        self._numbers = itertools.count()
        # Commands come in a thread of their own.
        self.guard = threading.Lock()

    def forget(self) -> None:
        """The names that are not there are looked for again."""
        self._missing.clear()
        self._kept.clear()
        self._look_again("/")

    def _changed(self, *paths: str) -> None:
        """This client has changed what these names mean."""
        for path in paths:
            self._kept.pop(os.path.dirname(path), None)
            self._kept.pop(path, None)

    # The names that this client believes in.

    def _here(self, path: str) -> str:
        """Where the server has it. ENOENT for a name that lately was not there."""
        self._refuse_missing(path)
        return self._led(path)

    def _named(self, path: str) -> str:
        """Where the server has the name, whatever folder it leads to here. ENOENT as above."""
        self._refuse_missing(path)
        return os.path.join(self._led(os.path.dirname(path)), os.path.basename(path))

    def _refuse_missing(self, path: str) -> None:
        until_s = self._missing.get(path)
        if until_s is not None and time.monotonic() < until_s:
            raise mfusepy.FuseOSError(errno.ENOENT)

    def _made(self, path: str) -> str:
        """Where the server will have what this client makes, and so knows of."""
        self._missing.pop(path, None)
        return self._named(path)

    def _led(self, path: str) -> str:
        """By way of the folders that names lead to."""
        above, below = path, ""
        while above.strip("/"):
            folder = self._leads_to(above)
            if folder is not None:
                return f"/proc/self/fd/{folder}{below}"
            above, name = os.path.split(above)
            below = f"/{name}{below}"
        return self._folder + path

    def _leads_to(self, path: str) -> int | None:
        """The folder that the name leads to, if this client knows one; not where that is gone:
        Linux asks again then.
        """
        folder = self._leads.get(path)
        if folder is not None and os.fstat(folder).st_nlink == 0:
            self._look_again(path)
            return None
        return folder

    def _look_into_again(self, folder: str) -> None:
        for name in [each for each in self._leads if os.path.dirname(each) == folder]:
            self._look_again(name)

    def _learn(self, path: str) -> None:
        if self._options.keeps_entries and path != "/" and path not in self._leads:
            self._leads[path] = os.open(self._led(path), os.O_PATH | os.O_DIRECTORY)

    def _look_again(self, path: str) -> None:
        """The name, and those below it, are looked for again."""
        below = path.rstrip("/") + "/"
        for name in [each for each in self._leads if each == path or each.startswith(below)]:
            os.close(self._leads.pop(name))

    @contextlib.contextmanager
    def _answering(self, call: str, *paths: str) -> Iterator[None]:
        with self.guard:
            fault = self.faults.next(call, *paths)
        if fault is not None and not fault.done:
            raise mfusepy.FuseOSError(fault.code)
        yield
        if fault is not None:
            raise mfusepy.FuseOSError(fault.code)

    def _alive(self, handle: int) -> int:
        """The descriptor. ESTALE when another client unlinked the file."""
        if os.fstat(handle).st_nlink == 0:
            raise mfusepy.FuseOSError(errno.ESTALE)
        return handle

    # Reads.

    def getattr(self, path: str | None, fh: int | None = None) -> dict[str, Any]:
        if path is None:
            assert fh is not None
            return self._facts(os.fstat(self._alive(fh)))
        kept = self._kept.get(path)
        if kept is not None and kept.looks > 0:
            kept.looks -= 1
            return kept.facts
        try:
            self._refuse_missing(path)
            folder = self._leads_to(path)
            found = os.lstat(self._led(path)) if folder is None else os.fstat(folder)
        except FileNotFoundError:
            if self._options.negative_s:
                self._missing[path] = time.monotonic() + self._options.negative_s
            raise
        with self._answering("getattr", path):
            facts = self._facts(found)
            if stat.S_ISDIR(found.st_mode):
                self._learn(path)
            if stat.S_ISDIR(found.st_mode) and self._options.folder_looks:
                self._kept[path] = Kept(facts, self._options.folder_looks)
            return facts

    def _facts(self, found: os.stat_result) -> dict[str, Any]:
        names = ("st_mode", "st_ino", "st_nlink", "st_uid", "st_gid", "st_size", "st_blocks")
        facts = {name: getattr(found, name) for name in names}
        for name in ("st_atime", "st_mtime", "st_ctime"):
            time_ns = getattr(found, f"{name}_ns") + self._offset_ns
            # Those of files' contents are told by whoever sets them: see `utimens`.
            is_own = name == "st_ctime" or stat.S_ISDIR(found.st_mode)
            step_ns = self._options.own_times_step_ns if is_own else 1
            facts[name] = self._rounded(time_ns) // step_ns * step_ns
        return facts

    def _rounded(self, time_ns: int) -> int:
        return time_ns // self._options.mtime_step_ns * self._options.mtime_step_ns

    def opendir(self, path: str) -> int:
        with self._answering("opendir", path):
            handle = os.open(self._here(path), os.O_RDONLY | os.O_DIRECTORY)
        self._listed[handle] = path
        if not self._options.trusts_parents:
            self._look_into_again(path)
        return handle

    def readdir(self, path: str | None, fh: int) -> Iterator[tuple[str, dict[str, int], int]]:
        for name in (".", ".."):
            yield name, {"st_mode": stat.S_IFDIR}, 0
        with self._answering("readdir", self._listed[fh]):
            kept = self._kept.get(self._listed[fh])
            if kept is None:
                yield from self._names(fh)
                return
            if kept.names is None:
                kept.names = list(self._names(fh))
            yield from kept.names

    @staticmethod
    def _names(handle: int) -> Iterator[tuple[str, dict[str, int], int]]:
        with os.scandir(handle) as entries:
            for entry in list(entries):
                kind = stat.S_IFDIR if entry.is_dir(follow_symlinks=False) else stat.S_IFREG
                kind = stat.S_IFLNK if entry.is_symlink() else kind
                yield entry.name, {"st_mode": kind, "st_ino": entry.inode()}, 0

    def releasedir(self, path: str | None, fh: int) -> int:
        del self._listed[fh]
        os.close(fh)
        return 0

    def fsyncdir(self, path: str | None, datasync: int, fh: int) -> int:
        return 0

    def statfs(self, path: str) -> dict[str, int]:
        found = os.statvfs(self._folder)
        return {name: getattr(found, name) for name in dir(found) if name.startswith("f_")}

    # Open files.

    def open(self, path: str, flags: int) -> int:
        with self._answering("open", path):
            return self._keep(path, os.open(self._here(path), flags | os.O_NOFOLLOW))

    def create(self, path: str, mode: int, flags: int) -> int:
        self._changed(path)
        return self._keep(path, os.open(self._made(path), flags | os.O_CREAT, mode))

    def _keep(self, path: str, handle: int) -> int:
        self._opened[handle] = Opened(path, os.fstat(handle).st_ino)
        return handle

    def read(self, path: str | None, size: int, offset: int, fh: int) -> bytes:
        return os.pread(self._alive(fh), size, offset)

    def write(self, path: str | None, data: bytes, offset: int, fh: int) -> int:
        return os.pwrite(self._alive(fh), data, offset)

    def fsync(self, path: str | None, datasync: int, fh: int) -> int:
        with self._answering("fsync", self._opened[fh].path):
            self._alive(fh)
        return 0

    def flush(self, path: str | None, fh: int) -> int:
        """A file is being closed. An NFS client gives its lock back before close(2) returns; the
        kernel sends `release` only afterwards.
        """
        fcntl.flock(fh, fcntl.LOCK_UN)
        return 0

    def flock(self, path: str | None, fh: int, operation: int) -> int:
        fcntl.flock(fh, operation)
        return 0

    def release(self, path: str | None, fh: int) -> int:
        closed = self._opened.pop(fh)
        os.close(fh)
        others = [each for each in self._opened.values() if each.inode == closed.inode]
        if closed.silly is not None and not others:
            folder, name = closed.silly
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
            os.close(folder)
        return 0

    def chmod(self, path: str, mode: int) -> int:
        os.chmod(self._here(path), mode)
        return 0

    def utimens(self, path: str, times: tuple[int, int] | None) -> int:
        """By the handle where the file is open: another client may have moved it."""
        handles = (handle for handle, each in self._opened.items() if each.path == path)
        target = next(handles, None) or self._here(path)
        if times is None:
            os.utime(target)
        else:
            accessed_ns, modified_ns = (self._rounded(each) - self._offset_ns for each in times)
            os.utime(target, ns=(accessed_ns, modified_ns))
        self._look_into_again(path)
        return 0

    # Names.

    def rename(self, old: str, new: str) -> int:
        with self._answering("rename", old, new):
            source = self._named(old)
            target = os.path.join(self._led(os.path.dirname(new)), os.path.basename(new))
            self._keep_open_file(target)
            os.rename(source, target)
            self._changed(old, new)
            self._look_again(new)
            for name in [each for each in self._leads if f"{each}/".startswith(f"{old}/")]:
                self._leads[new + name.removeprefix(old)] = self._leads.pop(name)
        self._made(new)  # Not where the reply was lost: nothing says that the name is there.
        for each in self._opened.values():
            if each.path == old or each.path.startswith(old + "/"):
                each.path = new + each.path.removeprefix(old)
        return 0

    def link(self, target: str, source: str) -> int:
        with self._answering("link", target, source):
            os.link(self._named(source), self._made(target), follow_symlinks=False)
            self._changed(target)
        return 0

    def symlink(self, target: str, source: str) -> int:
        with self._answering("symlink", target):
            os.symlink(source, self._made(target))
            self._changed(target)
        return 0

    def readlink(self, path: str) -> str:
        with self._answering("readlink", path):
            return os.readlink(self._named(path))

    def unlink(self, path: str) -> int:
        with self._answering("unlink", path):
            if not self._keep_open_file(self._named(path)):
                os.unlink(self._named(path))
            self._changed(path)
        return 0

    def mkdir(self, path: str, mode: int) -> int:
        with self._answering("mkdir", path):
            os.mkdir(self._made(path), mode)
            self._look_again(path)
            self._changed(path)
        return 0

    def rmdir(self, path: str) -> int:
        with self._answering("rmdir", path):
            os.rmdir(self._named(path))
            self._look_again(path)
            self._changed(path)
        return 0

    def _keep_open_file(self, path: str) -> bool:
        """Gives the file another name when it is open here; whether it did."""
        with contextlib.suppress(FileNotFoundError):
            inode = os.lstat(path).st_ino
            holders = [each for each in self._opened.values() if each.inode == inode]
            if holders:
                folder = os.path.dirname(path)
                silly = f".nfs{inode:016x}{next(self._numbers):08x}"
                os.rename(path, f"{folder}/{silly}")
                where = os.open(folder, os.O_PATH)
                for each in holders:
                    each.silly = (where, silly)
                return True
        return False


class Fuse(mfusepy.FUSE):  # type: ignore[misc]
    """Passes on the handle of a flock, which comes without a path."""

    def flock(self, path: bytes | None, info: Any, operation: int) -> int:
        return int(self.operations.flock(None, info.contents.fh, operation))


class Control(socketserver.StreamRequestHandler):
    """One command a connection, as a line of JSON: `[method, arguments]`; the answer likewise."""

    client: Client

    def handle(self) -> None:
        what, arguments = json.loads(self.rfile.readline())
        with self.client.guard:
            match what:
                case "arm":
                    self.client.faults.arm(**arguments)
                case "at_rates":
                    self.client.faults.at_rates(**arguments)
                case "heal":
                    self.client.faults.heal()
                case "forget":
                    self.client.forget()
            answer = dict(self.client.faults.hits)
        self.wfile.write(json.dumps(answer).encode() + b"\n")


def serve(where: str, folder: str, control: str, options: str) -> None:
    """Serves until the file system is unmounted."""
    client = Client(folder, Options(**json.loads(options)))
    handler = type("Handler", (Control,), {"client": client})
    commands = socketserver.UnixStreamServer(control, handler)
    threading.Thread(target=commands.serve_forever, daemon=True).start()
    Fuse(
        client,
        where,
        foreground=True,
        nothreads=True,
        fsname="mq-nfs",
        # Of the kinds that mq knows for a network's, one that a FUSE file system can have.
        subtype="sshfs",
        use_ino=True,
        hard_remove=True,
        direct_io=True,
        entry_timeout=1.0,
        negative_timeout=0.0,
        attr_timeout=0.0,
    )


if __name__ == "__main__":
    serve(*sys.argv[1:])
