"""A daemon with few file descriptors, under more connections than it can have."""

import asyncio
import contextlib
import resource
from collections import Counter
from pathlib import Path

import aiohttp
from harness.audits import assert_audits_clean
from harness.processes import PATIENCE_S, Process, Processes
from harness.waiting import comes_true

DESCRIPTORS = 64
TOO_MANY = 150
FEW = 5
REQUESTS_EACH = 3
MESSAGES = "/q/messages"
NO_ANSWER = (aiohttp.ClientError, ConnectionError, TimeoutError)


class Crowd:
    """Clients with a connection each, all at once; what they were told."""

    def __init__(self, mq: Process) -> None:
        self.url = mq.url
        self.published: set[str] = set()
        self.statuses: Counter[int] = Counter()

    async def publish(self, number: int) -> None:
        """Publishes a few, on a connection that it keeps while it can."""
        timeout = aiohttp.ClientTimeout(total=PATIENCE_S / 10)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            for _ in range(REQUESTS_EACH):
                try:
                    async with session.post(self.url + MESSAGES, data=b"%d" % number) as reply:
                        self.statuses[reply.status] += 1
                        if reply.status == 201:
                            self.published.add(reply.headers["X-Message-Id"])
                        else:
                            assert reply.status == 503
                            assert (await reply.json())["type"].endswith("no-descriptors")
                except NO_ANSWER:
                    self.statuses[0] += 1

    async def come_and_go(self, clients: int) -> None:
        await asyncio.gather(*(self.publish(number) for number in range(clients)))


async def drain(mq: Process) -> set[str]:
    """Fetches and deletes everything; the ids."""
    ids = set()
    async with aiohttp.ClientSession() as session:
        while True:
            async with session.get(mq.url + MESSAGES) as reply:
                if reply.status == 204:
                    return ids
                assert reply.status == 200
                await reply.read()
                ids.add(reply.headers["X-Message-Id"])
            deleted = f"{mq.url}{MESSAGES}/{reply.headers['X-Message-Id']}"
            async with session.delete(deleted) as gone:
                assert gone.status == 202


async def is_ready(mq: Process) -> bool:
    with contextlib.suppress(*NO_ANSWER):
        async with aiohttp.ClientSession() as session, session.get(f"{mq.url}/-/readyz") as reply:
            return reply.status == 200
    return False


async def test_too_many_connections_lose_no_message_and_pass(
    daemons: Processes, root: Path
) -> None:
    mq = await asyncio.to_thread(daemons.mq, root)
    async with aiohttp.ClientSession() as session, session.put(f"{mq.url}/q") as made:
        assert made.status == 201
    resource.prlimit(mq.popen.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    crowd = Crowd(mq)
    await crowd.come_and_go(TOO_MANY)
    print(dict(crowd.statuses))
    assert crowd.statuses[503] > 0, "there were descriptors enough"
    assert mq.popen.poll() is None
    await comes_true(lambda: is_ready(mq), "readiness")
    before = crowd.statuses[201]
    await crowd.come_and_go(FEW)
    assert crowd.statuses[201] == before + FEW * REQUESTS_EACH
    assert crowd.published <= await drain(mq)
    assert await asyncio.to_thread(mq.terminate) == 0
    assert_audits_clean(root)


IDLE = 112


async def test_idle_connections_leave_descriptors_for_others(
    daemons: Processes, root: Path
) -> None:
    few = ("sh", "-c", 'ulimit -n 128; exec "$@"', "sh")
    mq = await asyncio.to_thread(
        daemons.start, "mq", "--root", str(root), "--port", "0", before=few
    )
    listening = await asyncio.to_thread(mq.wait_for_log, r"listening .*port=(\d+)")
    mq.port = int(listening.group(1))
    says = await asyncio.to_thread(
        mq.wait_for_log, r"fewer connections than configured connections_max=(\d+)"
    )
    assert FEW < int(says.group(1)) < 128
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(IDLE):
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", mq.port)
                stack.callback(writer.close)
                writer.write(b"GET /-/livez HTTP/1.1\r\nHost: mq\r\n\r\n")
        await comes_true(lambda: is_ready(mq), "an answer beside idle connections")
        crowd = Crowd(mq)
        async with aiohttp.ClientSession() as session, session.put(f"{mq.url}/q") as made:
            assert made.status == 201
        await crowd.come_and_go(FEW)
        assert crowd.statuses == {201: FEW * REQUESTS_EACH}
    assert mq.logged("connections are refused: all are in use")
    assert await asyncio.to_thread(mq.terminate) == 0
