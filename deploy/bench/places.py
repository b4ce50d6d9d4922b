"""Where a bench writes, and how it runs there: a folder, tmpfs, or an ext4 of its own on a loop
device over tmpfs, whose flushes cost nothing or, on the slow disk, two milliseconds each.
"""

import contextlib
import functools
import mmap
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeVar, get_args

import click

from deploy.bench.ceiling import Commit
from deploy.bench.load import BenchError
from deploy.bench.machine import has_journal, heading
from deploy.bench.servers import commit_flags, make_queue
from mq.store.disk.mounts import file_system_of
from tests.harness.processes import Process, processes

FLUSH_S: Final = 0.002
"""What a flush of the slow disk takes."""

Command = TypeVar("Command", bound=Callable[..., Any])

_ENDING: Final = (signal.SIGINT, signal.SIGTERM)
_TMPFS: Final = "/dev/shm"
_PATIENCE_S: Final = 30.0
_COUNT: Final = struct.Struct("<Q")


@dataclass(frozen=True, slots=True)
class Ext4:
    """How an ext4 on an image is made. `options` are mkfs.ext4's and mount's."""

    image_bytes: int = 2 << 30
    inodes: int = 400_000
    # All initialised at once, so that the kernel writes nothing of its own while we measure.
    made_with: tuple[str, ...] = ("-E", "lazy_itable_init=0,lazy_journal_init=0")
    mounted_with: tuple[str, ...] = ()


_EXT4: Final = Ext4()


@dataclass(frozen=True, slots=True)
class Place:
    """Where a bench writes, and how mq commits there."""

    path: Path
    about: str
    commit: Commit
    flushes: Callable[[], int] | None = None
    """The number of flushes of the device so far, where that is counted."""

    @property
    def in_memory(self) -> bool:
        """Whether this is tmpfs, which has nothing to flush to."""
        return file_system_of(str(self.path)).in_memory

    @property
    def flags(self) -> tuple[str, ...]:
        """The commit mode as flags of mq."""
        return commit_flags(self.commit, self.in_memory)

    def committing(self, asked: Commit | None) -> "Place":
        """The same place with another commit mode, unless None. Raises BenchError on tmpfs."""
        if self.in_memory and asked not in (None, "none"):
            raise BenchError(f"tmpfs has nothing to flush to: leave out --commit {asked}")
        return replace(self, commit=asked or self.commit)

    def heading(self, *more: str) -> str:
        """What the figures are of: file system, commit mode, machine, and more lines."""
        return heading(self.path, self.commit, self.about, *more)

    @contextlib.contextmanager
    def mq(self, root: Path, *flags: str) -> Iterator[Process]:
        """An mq on a root below, with the queue made, and stopped at the end."""
        with processes() as started:
            server = started.mq(root, *self.flags, *flags)
            make_queue(server)
            yield server
            server.terminate()

    def clear(self, *made: Path) -> None:
        """Removes what one measurement left, and waits until that is on the disk.

        Without a journal ext4 passes over every inode that was freed in the last minutes when it
        makes a new one: removing one run's files would slow the next. They go at the end then.
        """
        if has_journal(self.path):
            clear(*made)


@contextlib.contextmanager
def folder(parent: Path | None = None) -> Iterator[Place]:
    """A folder of the bench's own below `parent` (None: where temporary files go), then gone."""
    with tempfile.TemporaryDirectory(prefix="mq-bench-", dir=parent) as made:
        in_memory = file_system_of(made).in_memory
        yield Place(Path(made), "a folder", "none" if in_memory else "fsync")


@contextlib.contextmanager
def tmpfs() -> Iterator[Place]:
    """A folder on tmpfs, then gone."""
    with folder(Path(_TMPFS)) as made:
        yield made


@contextlib.contextmanager
def loop_ext4(kind: Ext4 = _EXT4) -> Iterator[Place]:
    """An ext4 on a loop device whose image lies on tmpfs, then unmounted and gone.

    Its flushes cost system calls and journal commits, but no disk. Raises BenchError.
    """
    with tmpfs() as around, _mounted(_image(around.path, kind), around.path, kind) as mounted:
        yield Place(mounted, "an image on tmpfs: flushes cost no disk", "syncfs")


@contextlib.contextmanager
def slow_ext4(kind: Ext4 = _EXT4) -> Iterator[Place]:
    """The same, where every flush of the device takes FLUSH_S and is counted; reads and writes
    go as fast as `loop_ext4`'s. While it flushes the device does nothing else. Raises BenchError.
    """
    with contextlib.ExitStack() as cleanup:
        around = cleanup.enter_context(tmpfs()).path
        image, count, disk = _image(around, kind), around / "count", around / "disk"
        count.write_bytes(bytes(_COUNT.size))
        disk.touch()
        cleanup.enter_context(_served(disk, image, count))
        with count.open("rb") as file:
            counted = mmap.mmap(file.fileno(), _COUNT.size, access=mmap.ACCESS_READ)
        cleanup.callback(counted.close)
        mounted = cleanup.enter_context(_mounted(disk, around, kind))
        about = f"an image on tmpfs, each flush takes {1000 * FLUSH_S:g} ms"
        yield Place(mounted, about, "syncfs", lambda: int(_COUNT.unpack_from(counted)[0]))


def on_place(command: Callable[..., None], default: str | None = None) -> Callable[..., None]:
    """Gives a command `--root`, `--tmpfs`, `--loop`, `--slow` and `--commit`, and calls it with the
    `place: Place` that they choose, `default` without a flag. See `running`.
    """

    @functools.wraps(command)
    def run(root: Path | None, where: str | None, commit: Commit | None, **given: Any) -> None:
        with running(), _chosen(root, where, default) as place:
            command(place=place.committing(commit), **given)

    made: Callable[..., None] = commit_flag(run)
    for flag in (
        click.option("--slow", "where", flag_value="slow", help="As --loop, with 2 ms a flush."),
        click.option("--loop", "where", flag_value="loop", help="An ext4 of its own; as root."),
        click.option("--tmpfs", "where", flag_value="tmpfs", help="/dev/shm, nothing flushed."),
        click.option(
            "--root",
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="The folder for the bench's own folder.  [default: where temporary files go]",
        ),
    ):
        made = flag(made)
    return made


def _chosen(
    root: Path | None, where: str | None, default: str | None
) -> contextlib.AbstractContextManager[Place]:
    """The place of the flags. Raises BenchError for two."""
    if root is not None and where is not None:
        raise BenchError(f"--root and --{where} exclude each other")
    if root is None and (name := where or default) is not None:
        return PLACES[name]()
    return folder(root)


PLACES: Final[Mapping[str, Callable[[], contextlib.AbstractContextManager[Place]]]] = {
    "disk": folder,
    "loop": loop_ext4,
    "slow": slow_ext4,
    "tmpfs": tmpfs,
}
"""The places by the names of flags; `disk` is where temporary files go."""


@contextlib.contextmanager
def running() -> Iterator[None]:
    """Ctrl-C and SIGTERM end the bench: it unmounts and stops everything, and further signals do
    not stop that. A BenchError becomes one line.
    """
    for number in _ENDING:
        signal.signal(number, _end)
    try:
        yield
    except BenchError as error:
        raise click.ClickException(str(error)) from error


def rounds_flag(default: int) -> Callable[[Command], Command]:
    """`--rounds`."""
    return click.option("--rounds", type=click.IntRange(1), default=default, help="Interleaved.")


def seconds_flag(default: int) -> Callable[[Command], Command]:
    """`--seconds`."""
    return click.option(
        "--seconds", type=click.IntRange(1), default=default, help="Of each measurement."
    )


def commit_flag(command: Command) -> Command:
    """`--commit`, None unless given: then what mq chooses there by itself."""
    return click.option(
        "--commit",
        type=click.Choice(get_args(Commit)),
        help="As mq's --commit; none: --durability=none.  [default: as mq chooses by itself]",
    )(command)


def _end(number: int, frame: object) -> None:
    for each in _ENDING:
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _image(around: Path, kind: Ext4) -> Path:
    if os.geteuid() != 0:
        raise BenchError("a file system of its own is mounted: it needs root")
    image = around / "image"
    with image.open("wb") as file:
        file.truncate(kind.image_bytes)
    _run("mkfs.ext4", "-q", "-F", "-N", str(kind.inodes), *kind.made_with, str(image))
    return image


@contextlib.contextmanager
def _mounted(image: Path, around: Path, kind: Ext4) -> Iterator[Path]:
    mounted = around / "mounted"
    mounted.mkdir()
    options = ",".join(("loop", *kind.mounted_with))
    _run("mount", "-t", "ext4", "-o", options, str(image), str(mounted))
    try:
        yield mounted
    finally:
        _unmount(mounted)


@contextlib.contextmanager
def _served(disk: Path, image: Path, count: Path) -> Iterator[None]:
    """The slow disk's server, until the end."""
    arguments = ("-m", "deploy.bench.flush_server", str(disk), str(image), str(count), str(FLUSH_S))
    # In a session of its own: Ctrl-C is for the bench, which needs the disk until the end.
    server = subprocess.Popen(
        [sys.executable, *arguments], start_new_session=True, stderr=subprocess.PIPE, text=True
    )
    try:
        while not _is_served(disk):
            if server.poll() is not None:
                said = server.communicate()[1].strip().rpartition("\n")[2]
                raise BenchError(f"the slow disk needs FUSE passthrough, Linux 6.9: {said}")
            time.sleep(0.01)
        yield
    finally:
        subprocess.run(["umount", str(disk)], capture_output=True)
        try:
            server.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        if server.stderr is not None:
            server.stderr.close()
        # Where it is mounted still: nothing can be asked of a mount whose server is gone.
        subprocess.run(["umount", "--lazy", str(disk)], capture_output=True)


def _is_served(disk: Path) -> bool:
    try:
        return disk.stat().st_size > 0
    except OSError:  # Its server ended while it was mounted.
        return False


@contextlib.contextmanager
def synchronous(mounted: Path) -> Iterator[None]:
    """While it lasts, each write to what loop_ext4() mounted is on the disk before it returns."""
    _run("mount", "-o", "remount,sync", str(mounted))
    try:
        yield
    finally:
        _run("mount", "-o", "remount,async", str(mounted))


def clear(*made: Path) -> None:
    """Removes what one measurement left, and waits until that is on the disk."""
    for each in made:
        shutil.rmtree(each, ignore_errors=True)
    os.sync()


def _unmount(mounted: Path) -> None:
    if subprocess.run(["umount", str(mounted)], capture_output=True).returncode != 0:
        _run("umount", "--lazy", str(mounted))


def _run(*command: str) -> None:
    if shutil.which(command[0]) is None:
        raise BenchError(f"{command[0]} is missing: apt-get install e2fsprogs mount")
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"{command[0]} failed: {done.stderr.strip()}")
