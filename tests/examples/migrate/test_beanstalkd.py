"""A tube's jobs go to mq: each once, with what it says, wherever the program dies."""

from collections.abc import Iterator
from pathlib import Path

import greenstalk
import pytest
from harness import sources
from harness.migrating import CrashingSource, Died, begin, move, move_all
from harness.processes import Process, Processes

from mq import Client
from mq.client.errors import ClientError
from mq.client.options import Retry
from tests.examples.migrate import beanstalkd
from tests.examples.migrate.moving import Mover, Taken

BODY_BYTES_MAX = 1000


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with sources.beanstalkd(tmp_path_factory.mktemp("beanstalkd")) as address:
        yield address


@pytest.fixture
def mq(daemons: Processes, root: Path) -> Process:
    return daemons.mq(root, "--standalone")


def connected(server: str, tube: str) -> greenstalk.Client[bytes]:
    host, _, port = server.rpartition(":")
    return greenstalk.Client((host, int(port)), encoding=None, use=tube, watch=[tube])


def fill(server: str, tube: str, bodies: list[str]) -> None:
    with connected(server, tube) as client:
        for body in bodies:
            client.put(body.encode())


def test_each_job_keeps_what_it_says(server: str, mq: Process) -> None:
    with connected(server, "orders") as client:
        client.put(b"for later", delay=3600)
        client.put(b"failed", ttr=7)
        client.bury(client.reserve(timeout=0))
        client.put(b"first", ttr=120)
        client.put(b"second\xff")
        client.put(b"urgent", priority=0)
    flags = ("--from", server, "--tube", "orders", "--to", mq.url, "--queue", "orders")
    assert move("beanstalkd", *flags) == (0, "5 moved, 0 refused, 0 left at the source", "")
    with Client(mq.url) as client:
        orders = client.queue("orders")
        ready = orders.peek()
        assert [each.body for each in ready] == [b"urgent", b"first", b"second\xff"]
        assert [each.priority for each in ready] == [9, 4, 4]
        assert ready[0].headers["x-attribute-beanstalkd-pri"] == "0"
        (later,) = orders.peek(states=("delayed",))
        assert later.body == b"for later"
        assert 3000 < (later.due - later.published).total_seconds() <= 3600
        (failed,) = client.queue("orders_SIDELINE").peek()
        assert failed.body == b"failed"
        fetched = orders.fetch_many(2)[1]
        assert 100 < (fetched.due - fetched.published).total_seconds() < 600
        # Again there is nothing to do, and nothing comes twice.
        assert move("beanstalkd", *flags)[1] == "0 moved, 0 refused, 0 left at the source"
        assert len(orders.peek()) == 1


def test_what_was_stored_and_not_deleted_is_moved_once(server: str, mq: Process) -> None:
    bodies = [f"job {n}" for n in range(20)]
    fill(server, "dies", bodies)
    with Client(mq.url) as client:
        with beanstalkd.source(server, "dies") as source:
            mover = Mover(CrashingSource(source, settles=3), client, "orders", at_once=4)
            with pytest.raises(Died):
                mover.run(idle_s=60)
        assert len(client.queue("orders").peek()) == 16
        flags = ("--from", server, "--tube", "dies", "--to", mq.url, "--queue", "orders")
        move_all("beanstalkd", *flags)
        found = [each.text() for each in client.queue("orders").browse(["ready"])]
    assert sorted(found) == sorted(bodies)


def test_a_program_that_is_killed_loses_and_doubles_nothing(server: str, mq: Process) -> None:
    bodies = [f"job {n}" for n in range(400)]
    fill(server, "killed", bodies)
    flags = ("--from", server, "--tube", "killed", "--to", mq.url, "--queue", "orders")
    with begin("beanstalkd", *flags) as popen:
        assert popen.stdout is not None
        assert popen.stdout.readline() == "moved 100\n"
        popen.kill()
    move_all("beanstalkd", *flags)
    with Client(mq.url) as client:
        found = [each.text() for each in client.queue("orders").browse(["ready"])]
    assert sorted(found) == sorted(bodies)


def test_what_mq_cannot_store_now_stays(
    server: str, mq: Process, daemons: Processes, root: Path
) -> None:
    bodies = [f"job {n}" for n in range(10)]
    fill(server, "away", bodies)

    class Outage(CrashingSource):
        """mq goes while the source has given its jobs."""

        def take(self) -> list[Taken]:
            taken = super().take()
            mq.terminate()
            return taken

    with (
        Client(mq.url, retry=Retry(attempts=1)) as client,
        beanstalkd.source(server, "away") as source,
    ):
        mover = Mover(Outage(source), client, "orders")
        with pytest.raises(ClientError):
            mover.run(idle_s=60)
    again = daemons.mq(root, "--standalone")
    flags = ("--from", server, "--tube", "away", "--to", again.url, "--queue", "orders")
    assert move("beanstalkd", *flags)[1] == "10 moved, 0 refused, 0 left at the source"
    with Client(again.url) as client:
        found = [each.text() for each in client.queue("orders").browse(["ready"])]
    assert sorted(found) == sorted(bodies)


def test_what_mq_refuses_is_told_and_buried(server: str, mq: Process) -> None:
    large = "x" * (BODY_BYTES_MAX + 1)
    fill(server, "large", ["first", large, "last"])
    with Client(mq.url) as client:
        orders = client.queue("orders")
        orders.create()
        orders.change_settings({"body_bytes_max": BODY_BYTES_MAX})
        flags = ("--from", server, "--tube", "large", "--to", mq.url, "--queue", "orders")
        ended, last, wrong = move("beanstalkd", *flags)
        assert (ended, last) == (1, "2 moved, 1 refused, 1 left at the source")
        assert f"{BODY_BYTES_MAX} bytes" in wrong
        assert [each.text() for each in orders.peek()] == ["first", "last"]
    with connected(server, "large") as tube:
        assert tube.peek_buried().body == large.encode()


@pytest.mark.parametrize(
    ("pri", "level"), [(0, 9), (1, 9), (1023, 6), (1024, 6), (65536, 4), (2**31, 0), (2**32 - 1, 0)]
)
def test_the_more_urgent_goes_first(pri: int, level: int) -> None:
    assert beanstalkd.priority(pri) == level
    assert beanstalkd.priority(pri // 2) >= level
