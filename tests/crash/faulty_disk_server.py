"""The process of a file system that loses what was not flushed, and logs every change.

    python -m crash.faulty_disk_server MOUNT_POINT

All is in memory. Below `disk/` lies an ordinary file system. What is written to `control` is an
order, see `FaultyOperations.write`. One request is served at a time, so the log has one order. The
kernel passes no syncfs on to FUSE: mq runs with --commit=fsync.
"""

import errno
import json
import os
import pickle
import random
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import Any

import mfusepy  # type: ignore[import-untyped]
from crash.calls import (
    TOP,
    Call,
    Link,
    Make,
    Remove,
    Rename,
    Stamp,
    Sync,
    Truncate,
    Write,
)  # fmt: skip
from crash.changes import Tree
from crash.images import Mark
from crash.legal_states import Disk, Model
from crash.trees import any_tree

CONTROL, DISK = "control", "disk"
_CONTROL_HANDLE = 1


@dataclass
class Node:
    """A file or a folder as it is in memory."""

    inode: int
    mode: int
    names: dict[str, int] = field(default_factory=dict)
    data: bytearray = field(default_factory=bytearray)
    mtime_ns: int = field(default_factory=time.time_ns)
    ctime_ns: int = field(default_factory=time.time_ns)
    links: int = 1
    target: str | None = None
    """What it says that is a symbolic link."""

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.mode)

    def changed(self) -> None:
        self.mtime_ns = self.ctime_ns = time.time_ns()


class FaultyOperations(mfusepy.Operations):  # type: ignore[misc]
    """The calls of the kernel. After a cut each fails with EIO, until the power is on again."""

    use_ns = True

    def __init__(self) -> None:
        self.log: list[Call | Mark] = []
        self._cut_at: int | None = None
        self._handles: dict[int, Node] = {}
        self._next_handle = _CONTROL_HANDLE
        self._next_inode = TOP
        self._nodes: dict[int, Node] = {}
        self._new_node(stat.S_IFDIR | 0o755)

    # Orders.

    def _order(self, order: dict[str, Any]) -> None:
        match order:
            case {"mark": facts}:
                self.log.append(Mark(facts))
            case {"cut_after": calls}:
                self._cut_at = len(self.log) + calls
            case {"power_on": model, "seed": seed}:
                self._power_on(Model[model], random.Random(seed))
            case {"save": path}:
                with open(path, "wb") as file:
                    pickle.dump(self.log, file)
                self.__init__()  # type: ignore[misc]
            case _:
                raise mfusepy.FuseOSError(errno.EINVAL)

    def _power_on(self, model: Model, chance: random.Random) -> None:
        """What a legal tree has is there, flushed; a log begins that makes it."""
        disk = Disk(model)
        for call in self.log[: self._cut_at]:
            disk.apply(call)
        tree = any_tree(disk, chance)
        self.__init__()  # type: ignore[misc]
        self._plant(tree)

    def _plant(self, tree: Tree) -> None:
        inodes: dict[int, int] = {}
        for path, file in tree.items():
            if file is None:
                self._make(path, stat.S_IFDIR | 0o700)
            elif file.inode in inodes:
                self._link(self._nodes[inodes[file.inode]], path)
            elif file.target is not None:
                self._make(path, stat.S_IFLNK | 0o777, file.target, file.mtime_ns)
            else:
                node = self._make(path, stat.S_IFREG | 0o600)
                inodes[file.inode] = node.inode
                node.data[:] = file.data
                self.log.append(Write(node.inode, 0, file.data, file.mtime_ns))
                node.mtime_ns = file.mtime_ns
        self.log += [Sync(inode) for inode in self._nodes]

    def _is_cut(self) -> bool:
        return self._cut_at is not None and len(self.log) >= self._cut_at

    # Names.

    def _node(self, path: str | None, handle: int | None = None) -> Node:
        if self._is_cut():
            raise mfusepy.FuseOSError(errno.EIO)
        if handle:
            if handle not in self._handles:  # Opened before the power was cut.
                raise mfusepy.FuseOSError(errno.EIO)
            return self._handles[handle]
        node = self._nodes[TOP]
        for name in filter(None, (path or "").split("/")):
            if not node.is_folder:
                raise mfusepy.FuseOSError(errno.ENOTDIR)
            if name not in node.names:
                raise mfusepy.FuseOSError(errno.ENOENT)
            node = self._nodes[node.names[name]]
        return node

    def _parent(self, path: str) -> tuple[Node, str]:
        folder, _, name = path.rpartition("/")
        return self._node(folder), name

    def _new_node(self, mode: int) -> Node:
        node = self._nodes[self._next_inode] = Node(self._next_inode, mode)
        self._next_inode += 1
        return node

    def _make(
        self, path: str, mode: int, target: str | None = None, mtime_ns: int | None = None
    ) -> Node:
        folder, name = self._parent(path)
        if name in folder.names:
            raise mfusepy.FuseOSError(errno.EEXIST)
        node = self._new_node(mode)
        node.target, node.mtime_ns = target, mtime_ns or node.mtime_ns
        folder.names[name] = node.inode
        folder.changed()
        self.log.append(Make(folder.inode, name, node.inode, node.is_folder, node.mtime_ns, target))
        return node

    def _link(self, node: Node, path: str) -> None:
        folder, name = self._parent(path)
        if name in folder.names:
            raise mfusepy.FuseOSError(errno.EEXIST)
        folder.names[name] = node.inode
        folder.changed()
        node.links += 1
        self.log.append(Link(folder.inode, name, node.inode))

    def _unname(self, folder: Node, name: str) -> None:
        node = self._nodes[folder.names.pop(name)]
        folder.changed()
        node.links -= 1
        node.ctime_ns = time.time_ns()

    def _opened(self, node: Node) -> int:
        self._next_handle += 1
        self._handles[self._next_handle] = node
        return self._next_handle

    # Calls that change nothing.

    def init_with_config(self, connection: Any, config: Any) -> None:
        """Nothing is cached in the kernel, and an unlinked file is gone."""
        config.hard_remove = config.use_ino = config.direct_io = config.nullpath_ok = 1
        config.entry_timeout = config.attr_timeout = config.negative_timeout = 0.0

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        if path == "/":
            return {"st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        if path == f"/{CONTROL}" or fh == _CONTROL_HANDLE:
            return {"st_mode": stat.S_IFREG | 0o600, "st_nlink": 1}
        node = self._node(_below(path), fh)
        return {
            "st_ino": node.inode, "st_mode": node.mode, "st_nlink": node.links,
            "st_size": len(node.target or node.data), "st_blocks": (len(node.data) + 511) // 512,
            "st_atime": node.mtime_ns, "st_mtime": node.mtime_ns, "st_ctime": node.ctime_ns,
        }  # fmt: skip

    def open(self, path: str, flags: int) -> int:
        return _CONTROL_HANDLE if path == f"/{CONTROL}" else self._opened(self._node(_below(path)))

    def release(self, path: str, fh: int) -> int:
        self._handles.pop(fh, None)
        return 0

    def opendir(self, path: str) -> int:
        return self._opened(self._node(_below(path)))

    def releasedir(self, path: str, fh: int) -> int:
        return self.release(path, fh)

    def readdir(self, path: str, fh: int) -> Any:
        yield from (".", "..")
        for name, inode in self._node(None, fh).names.items():
            yield name, {"st_ino": inode, "st_mode": self._nodes[inode].mode}, 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        return bytes(self._node(None, fh).data[offset : offset + size])

    def readlink(self, path: str) -> str:
        node = self._node(_below(path))
        if node.target is None:
            raise mfusepy.FuseOSError(errno.EINVAL)
        return node.target

    def statfs(self, path: str) -> dict[str, int]:
        return {"f_bsize": 4096, "f_frsize": 4096, "f_blocks": 1 << 20, "f_bfree": 1 << 20,
                "f_bavail": 1 << 20, "f_namemax": 255}  # fmt: skip

    # Calls that change something.

    def create(self, path: str, mode: int, fi: Any = None) -> int:
        return self._opened(self._make(_below(path), stat.S_IFREG | stat.S_IMODE(mode)))

    def mkdir(self, path: str, mode: int) -> None:
        self._make(_below(path), stat.S_IFDIR | stat.S_IMODE(mode))

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        """To `control`: {"mark": facts} puts a mark into the log; {"cut_after": n} cuts the power
        n calls later; {"power_on": model, "seed": n} goes on with what a cut has left;
        {"save": path} writes the log there and begins anew, with nothing.
        """
        if fh == _CONTROL_HANDLE:
            self._order(json.loads(data))
            return len(data)
        node = self._node(None, fh)
        node.data.extend(bytes(max(0, offset - len(node.data))))
        node.data[offset : offset + len(data)] = data
        node.changed()
        self.log.append(Write(node.inode, offset, data, node.mtime_ns))
        return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> None:
        node = self._node(_below(path), fh)
        node.data[length:] = bytes(max(0, length - len(node.data)))
        node.changed()
        self.log.append(Truncate(node.inode, length, node.mtime_ns))

    def set_times(self, path: str | None, mtime_ns: int, fh: int | None) -> None:
        """As utimens, which mfusepy hands on without the handle."""
        node = self._node(_below(path), fh)
        node.mtime_ns, node.ctime_ns = mtime_ns, time.time_ns()
        self.log.append(Stamp(node.inode, mtime_ns))

    def utimens(self, path: str, times: tuple[int, int] | None = None) -> None:
        """Only its being there counts; see `set_times`."""

    def chmod(self, path: str, mode: int, fh: int | None = None) -> None:
        node = self._node(_below(path))
        node.mode = stat.S_IFMT(node.mode) | stat.S_IMODE(mode)

    def rename(self, old: str, new: str) -> None:
        (source, old_name), (target, new_name) = (
            self._parent(_below(old)),
            self._parent(_below(new)),
        )
        node = self._node(_below(old))
        if (there := target.names.get(new_name)) == node.inode:
            return  # Two names of one file: nothing happens.
        if there is not None:
            if self._node(_below(new)).names:
                raise mfusepy.FuseOSError(errno.ENOTEMPTY)
            self._unname(target, new_name)
        del source.names[old_name]
        target.names[new_name] = node.inode
        source.changed()
        target.changed()
        node.ctime_ns = time.time_ns()
        self.log.append(Rename(source.inode, old_name, target.inode, new_name, node.inode))

    def symlink(self, target: str, source: str) -> None:
        self._make(_below(target), stat.S_IFLNK | 0o777, source)

    def link(self, target: str, source: str) -> None:
        self._link(self._node(_below(source)), _below(target))

    def unlink(self, path: str) -> None:
        folder, name = self._parent(_below(path))
        self._node(_below(path))
        self._unname(folder, name)
        self.log.append(Remove(folder.inode, name))

    def rmdir(self, path: str) -> None:
        if self._node(_below(path)).names:
            raise mfusepy.FuseOSError(errno.ENOTEMPTY)
        self.unlink(path)

    def fsync(self, path: str, datasync: int, fh: int) -> int:
        self.log.append(Sync(self._node(None, fh).inode))
        return 0

    def fsyncdir(self, path: str, datasync: int, fh: int) -> int:
        return self.fsync(path, datasync, fh)


def _below(path: str | None) -> str:
    """The path below `disk`."""
    return (path or "").removeprefix(f"/{DISK}")


class _Fuse(mfusepy.FUSE):  # type: ignore[misc]
    def utimens_fuse_3(self, path: bytes | None, times: Any, info: Any) -> int:
        text = None if path is None else os.fsdecode(path)
        times_ns = times.contents.modtime
        mtime_ns = times_ns.tv_sec * 1_000_000_000 + times_ns.tv_nsec
        self.operations.set_times(text, mtime_ns, info.contents.fh if info else None)
        return 0


if __name__ == "__main__":
    _Fuse(FaultyOperations(), sys.argv[1], foreground=True, nothreads=True, fsname="mq-faulty")
