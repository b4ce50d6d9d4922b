"""`python -m deploy.bench.bodies`: bodies from 1 KiB to 50 MiB through mq, in MB/s.

Publishing is held against dd, which writes files of the same size on the same file system and
fsyncs each; fetching against nginx, which sends such a file by sendfile, and promises nothing. As
many dd run at a time as there are connections. Every dd is a process of its own, and that is most
of what the small ones cost. A MB is a million bytes.
"""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import click

from deploy.bench.ceiling import Commit
from deploy.bench.load import BenchError, compiled, load
from deploy.bench.others.rival import free_port, process
from deploy.bench.places import PLACES, Ext4, Place, commit_flag, loop_ext4, rounds_flag, running
from deploy.bench.servers import MESSAGES
from deploy.bench.table import drawn, spread

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20
SIZES: Final = (_KIB, 16 * _KIB, 256 * _KIB, _MIB, 8 * _MIB, 50 * _MIB)

_MESSAGES_MIN, _MESSAGES_MAX = 8, 4000
_DDS_MAX: Final = 400
_DD_BLOCK_BYTES: Final = _MIB
_EXT4: Final = Ext4(image_bytes=6 << 30, inodes=100_000)

_WHATS: Final = ("publish", "dd", "fetch", "nginx")
# One worker a core, files by sendfile, and no connection closed for having asked often.
_NGINX: Final = """
daemon off;
user root;
worker_processes auto;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{ listen 127.0.0.1:{port}; root {files}; }}
}}
"""


@click.command("python -m deploy.bench.bodies", context_settings={"show_default": True})
@click.option(
    "--place", "places", type=click.Choice(tuple(PLACES)), multiple=True, default=("loop", "disk")
)
@click.option("--mib", type=int, default=128, help="Of each measurement, about.")
@click.option("--connections", type=click.IntRange(1), default=4, help="Kept open.")
@rounds_flag(3)
@commit_flag
def main(
    places: tuple[str, ...], mib: int, connections: int, rounds: int, commit: Commit | None
) -> None:
    """Measures publish and fetch in MB/s, beside dd with an fsync and nginx."""
    with running():
        compiled()
        for name in places:
            with loop_ext4(_EXT4) if name == "loop" else PLACES[name]() as made:
                place = made.committing(commit)
                click.echo(place.heading(f"{connections} connections"))
                click.echo(f"median (min-max) of {rounds} interleaved rounds of {mib} MiB each\n")
                click.echo(_table(_rounds(place, mib, connections, rounds)) + "\n")


def _rounds(
    place: Place, mib: int, connections: int, rounds: int
) -> dict[int, dict[str, list[float]]]:
    """MB a second of each round, by size and by what was measured."""
    found: dict[int, dict[str, list[float]]] = {size: {} for size in SIZES}
    for number in range(1, rounds + 1):
        for size, by_what in found.items():
            made = place.path / f"{number}-{size}"
            made.mkdir()
            for what, rate in _measure(place, made, size, mib, connections):
                by_what.setdefault(what, []).append(rate / 1e6)
            place.clear(made)
            click.echo(f"round {number}: {_said(size)} done", err=True)
    return found


def _measure(
    place: Place, made: Path, size: int, mib: int, connections: int
) -> Iterator[tuple[str, float]]:
    """Bytes a second of each."""
    messages = min(max(mib * _MIB // size, _MESSAGES_MIN), _MESSAGES_MAX)
    # Rounded, so that each connection has as many.
    messages = max(messages // connections, 1) * connections
    with place.mq(made / "mq") as server:
        url = f"{server.url}{MESSAGES}"
        published = load(
            "publish", url, connections=connections, messages=messages, body_bytes=size
        )
        yield "publish", published.rate * size
        fetched = load("fetch", url, connections=connections, messages=messages, body_bytes=size)
        yield "fetch", fetched.rate * size
    files = made / "files"
    files.mkdir()
    yield "dd", _dd(files, size, min(messages, _DDS_MAX), connections) * size
    work = made / "nginx"
    work.mkdir()
    with _nginx(files, work) as url:
        got = load("get", f"{url}/0", connections=connections, messages=messages, body_bytes=size)
        yield "nginx", got.rate * size


def _dd(files: Path, size: int, number: int, at_a_time: int) -> float:
    """Files a second that dd writes and fsyncs, this many at a time."""
    block = min(size, _DD_BLOCK_BYTES)

    def write(file: int) -> None:
        subprocess.run(
            ["dd", "if=/dev/zero", f"of={files / str(file)}", f"bs={block}",
             f"count={size // block}", "conv=fsync", "status=none"],
            check=True,
        )  # fmt: skip

    with ThreadPoolExecutor(at_a_time) as pool:
        began = time.perf_counter()
        for _ in pool.map(write, range(number)):
            pass
        return number / (time.perf_counter() - began)


@contextlib.contextmanager
def _nginx(files: Path, work: Path) -> Iterator[str]:
    """Serves a folder by nginx as Debian has it; its URL. `work` is an existing folder."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        raise BenchError("nginx is missing: apt-get install nginx-light")
    port = free_port()
    configuration = work / "nginx.conf"
    configuration.write_text(_NGINX.format(work=work, files=files, port=port))
    told = (found, "-e", str(work / "error.log"), "-p", str(work), "-c", str(configuration))
    with process(work, port, *told):
        yield f"http://127.0.0.1:{port}"


def _table(found: dict[int, dict[str, list[float]]]) -> str:
    rows = [("MB/s", "mq, publish", "dd, fsync", "to dd", "mq, fetch", "nginx", "to nginx")]
    for size, by_what in found.items():
        publish, dd, fetch, other = (sorted(by_what[what]) for what in _WHATS)
        middle = len(dd) // 2
        rows.append(
            (
                _said(size),
                spread(publish, ",.1f"),
                spread(dd, ",.1f"),
                f"{publish[middle] / dd[middle]:.2f}",
                spread(fetch, ",.1f"),
                spread(other, ",.1f"),
                f"{fetch[middle] / other[middle]:.2f}",
            )
        )
    return drawn(rows)


def _said(size: int) -> str:
    return f"{size // _MIB} MiB" if size >= _MIB else f"{size // _KIB} KiB"


if __name__ == "__main__":
    main()
