"""mq itself: alone, and with mq-mover and mq-reaper beside it.

Alone, what was deleted stays in remove/, to be unlinked later, as with `mq-reaper --keep`. With
--standalone the reaper unlinks it meanwhile, on the same cores.
"""

import contextlib
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from deploy.bench.ceiling import Commit
from deploy.bench.others.rival import Rival, Serving, free_port, process

_PROMISE = (
    "Each answer comes after the fsyncs: of a publish the file and its folders, of a fetch the "
    "claim with its due time, of a delete its rename. What cannot be flushed is a 503."
)


@contextlib.contextmanager
def _serving(folder: Path, *flags: str) -> Iterator[Serving]:
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    def queue(name: str) -> str:
        with urllib.request.urlopen(urllib.request.Request(f"{url}/{name}", method="PUT")) as made:
            made.read()
        return f"{url}/{name}/messages"

    told = ("--root", str(folder / "root"), "--port", str(port), *flags)
    with process(folder, port, sys.executable, "-m", "mq", *told) as popen:
        yield Serving(queue, popen)


def _mq(commit: Commit, *flags: str) -> Rival:
    return Rival(
        name=" ".join(("mq", *flags)),
        program=sys.executable,
        packages=(),
        version=(sys.executable, "-m", "mq", "--version"),
        publish_on_disk="yes",
        cycle_on_disk="publish, fetch, delete",
        as_much_as_mq=True,
        promise=_PROMISE,
        serve=lambda folder: _serving(folder, "--commit", commit, *flags),
    )


def rivals(commit: Commit) -> list[Rival]:
    """In one process, and in two where mq can; with this commit mode."""
    told = subprocess.run([sys.executable, "-m", "mq", "--help"], capture_output=True, text=True)
    counts: list[tuple[str, ...]] = [()]
    if "--processes" in told.stdout:
        counts.append(("--processes=2",))
    return [
        _mq(commit, *count, *daemons) for count in counts for daemons in ((), ("--standalone",))
    ]
