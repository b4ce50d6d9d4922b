"""`python -m deploy.bench.fsck`: what a check of a large root takes, against a bare walk of the
same names by `find -printf`, in the same run. Everything written is removed at the end.
"""

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

import click

from deploy.bench.machine import heading
from deploy.bench.places import chosen, place_flags
from deploy.bench.running import rounds_flag, running
from deploy.bench.table import drawn
from mq.model.clock import SystemClock
from mq.model.message import Stamp
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.core.root import Root, open_root
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.disk.group import run_alone
from mq.store.format.bucket_names import Shape
from mq.store.operations.queues import create_queue

QUEUE = QueueName("orders")
BODY = b"x" * 300
FIND = ("find", ".", "-printf", "%p %s %m %T@ %n\\n")
FSCK = (sys.executable, "-m", "mq.tools.fsck", "--again-after", "0")
_FLAT_MAX = 10_000


@click.command("python -m deploy.bench.fsck", context_settings={"show_default": True})
@place_flags
@rounds_flag(3)
@click.option("--messages", type=click.IntRange(1), multiple=True, default=(100_000, 1_000_000))
def main(root: Path | None, where: str | None, rounds: int, messages: tuple[int, ...]) -> None:
    """Measures seconds and peak memory of `mqctl fsck` on roots of so many ready messages."""
    with running(), chosen(root, where) as place:
        click.echo(heading(place.path, "fsync", place.about, f"bodies of {len(BODY)} bytes"))
        rows = [("messages", "what", "seconds", "messages a second", "peak memory")]
        for count in messages:
            made = place.path / f"fsck-{count}"
            fill(made, count)
            for what, run in (("find -printf", find), ("mqctl fsck", fsck)):
                runs = [run(made) for _ in range(rounds)]
                seconds = median(each[0] for each in runs)
                peak_mib = max(each[1] for each in runs) / 1024
                # What a child has before its exec is its parent's.
                peak = "" if run is find else f"{peak_mib:.0f} MiB"
                figures = (f"{seconds:.1f}", f"{count / seconds:,.0f}", peak)
                rows.append((f"{count:,}", what, *figures))
        click.echo(drawn(rows))


def fill(top: Path, count: int) -> None:
    """A root with so many ready messages, as mq would have put them."""
    opened = open_root(str(top), Files(), SystemClock())
    run_alone(create_queue(opened, QUEUE), NoFlusher())
    uuids = UuidSource(opened.clock)
    shape, made = Shape(), {""}
    for number in range(count):
        message_id = MessageId(uuids.next())
        bucket = "" if number < _FLAT_MAX else shape.deep(message_id)
        _put(opened, made, message_id, bucket)


def _put(root: Root, made: set[str], message_id: MessageId, bucket: str) -> None:
    folder = Path(root.layout.queue(QUEUE)) / bucket
    if bucket not in made:
        for path in (folder.parent, folder):
            path.mkdir(mode=0o700, exist_ok=True)
        made.add(bucket)
    path = folder / message_id.text
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    os.write(descriptor, BODY)
    mtime_ns = Stamp(message_id.published_ms).mtime_ns()
    os.utime(descriptor, ns=(mtime_ns, mtime_ns))
    os.close(descriptor)


def find(top: Path) -> tuple[float, int]:
    """Seconds, and KiB at the peak."""
    return _timed(FIND, top)


def fsck(top: Path) -> tuple[float, int]:
    """The same of a check that finds nothing."""
    return _timed((*FSCK, str(top)), top)


def _timed(command: tuple[str, ...], top: Path) -> tuple[float, int]:
    began = time.monotonic()
    with subprocess.Popen(command, cwd=top, stdout=subprocess.DEVNULL) as process:
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise click.ClickException(f"{command} ended with {process.returncode}")
    return time.monotonic() - began, used.ru_maxrss


if __name__ == "__main__":
    main()
