"""Where a fake is: in memory, in a process of its own user's, and nothing is left of it."""

import os
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mq.testing import FakeMq

USED = """
import gc, os, sys, weakref
import mq.testing.inside as inside
from mq.testing import FakeMq
{before}
fake = FakeMq()
with fake.client() as client:
    orders = client.queue("orders")
    orders.create()
    orders.publish(b"two pizzas")
    assert orders.fetch().body == b"two pizzas"
    orders.purge()
roots = fake._inside.running.folder
assert os.path.isdir(roots), roots
{after}
print(os.getpid(), roots)
"""
GONE = "assert not os.path.exists(roots)"
ENDS = {
    "closed": f"fake.close(); fake.close(); {GONE}",
    "collected": f"del fake, client, orders; gc.collect(); {GONE}",
    "exit": "",
    "an exception": "raise SystemExit(f'{os.getpid()} {roots}')",
    "forked": "pid = os.fork()\nif pid == 0:\n    sys.exit(0)\nos.waitpid(pid, 0)\n"
    "assert os.path.isdir(roots)",
}


def used(folder: Path, before: str = "", after: str = "") -> str:
    """Uses a fake in a process of its own; where its root was."""
    ended = subprocess.run(
        [sys.executable, "-c", USED.format(before=before, after=after)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TMPDIR": str(folder)},
    )
    said = ended.stdout.split() or ended.stderr.split()
    assert len(said) == 2, ended.stderr
    pid, root = said
    places = (Path("/dev/shm"), folder, Path(tempfile.gettempdir()))
    assert [found for each in places for found in each.glob(f"mq-fake-{pid}-*")] == []
    return root


@pytest.mark.certificate
@pytest.mark.parametrize("end", ENDS)
def test_nothing_is_left(tmp_path: Path, end: str) -> None:
    root = used(tmp_path, after=ENDS[end])
    assert root.startswith("/dev/shm/") or not Path("/dev/shm").exists()


@pytest.mark.certificate
def test_a_system_that_keeps_no_files_in_memory_has_it_too(tmp_path: Path) -> None:
    """As macOS: without /dev/shm, and what else is Linux's."""
    hidden = "inside.MEMORY = '/nowhere'\nfor name in ('O_PATH', 'memfd_create'): delattr(os, name)"
    assert used(tmp_path, before=hidden).startswith(str(tmp_path))


def test_the_clients_of_a_daemon_load_none() -> None:
    program = (
        "import sys, mq.client\nfrom mq import AsyncClient, Client, Worker\n"
        "tops = ('mq.broker', 'mq.daemon', 'mq.http', 'mq.store', 'mq_mover', 'httptools')\n"
        "print([each for each in sys.modules if each.startswith(tops)])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert found.stdout == b"[]\n"


def test_many_threads_use_one_fake() -> None:
    fake = FakeMq()
    with fake.client() as client:
        client.queue("orders").create()

    def work(number: int) -> bytes:
        with fake.client() as client:
            orders = client.queue("orders")
            orders.publish(str(number))
            with orders.fetch() as message:
                body: bytes = message.body
            return body

    with ThreadPoolExecutor(8) as threads:
        found = list(threads.map(work, range(40)))
    assert sorted(found) == sorted(fake.queue("orders").removed)
    assert len(found) == 40


def test_nothing_waits_for_other_processes() -> None:
    """Twenty purges would wait for eleven seconds, in which all processes of a root hear of one."""
    fake = FakeMq()
    with fake.client() as client:
        orders = client.queue("orders")
        orders.create()
        began_s = fake.clock.steady_s()
        for _ in range(20):
            orders.publish(b"x")
            orders.purge()
        assert fake.clock.steady_s() - began_s < 10
        assert orders.fetch() is None
    assert fake.queue("orders").ready == []
