"""Bodies in memory behind a broker: whatever gives way, a fetch brings what was published."""

import asyncio
import tempfile
from typing import Any

import pytest
from harness.chance import examples
from harness.clock import FakeClock
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.broker.broker import Broker
from mq.broker.memory import MEMORY_IN_HAND_BYTES_MIN, Reservation
from mq.model.headers import Headers
from mq.model.limits import KIB, MIB
from mq.model.message import Delivery, Envelope
from mq.model.names import QueueName
from mq.model.settings import QueueSettings
from mq.store.disk.commit import Committer
from mq.store.disk.files import Files
from mq.store.disk.flush import NoFlusher
from mq.store.opening import open_root

QUEUES = [QueueName.parse(name) for name in "abc"]

queues = st.sampled_from(QUEUES)
steps = st.one_of(
    st.tuples(st.just("publish"), queues, st.integers(0, 9000), st.sampled_from([None, 0, 9])),
    st.tuples(st.just("fetch"), queues),
    st.tuples(st.just("hold"), st.sampled_from([100, 30 * KIB, 11 * MIB])),
    st.tuples(st.just("let_go")),
    st.tuples(st.just("wait"), st.sampled_from([0.6, 5.0])),
    st.tuples(st.just("purge"), queues),
    st.tuples(st.just("forget"), queues),
)


@pytest.mark.certificate
@given(
    st.lists(steps, max_size=40), st.sampled_from([0, 4 * KIB, 40 * KIB, MEMORY_IN_HAND_BYTES_MIN])
)
@settings(max_examples=examples(25))
def test_a_fetch_brings_what_was_published_and_only_that_is_kept(
    done: list[tuple[Any, ...]], budget: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_run(folder, done, budget))


async def _run(folder: str, done: list[tuple[Any, ...]], budget: int) -> None:
    run = Run(folder, budget)
    for name in QUEUES:
        await run.broker.create_queue(name)
    for what, *more in done:
        await getattr(run, what)(*more)
        await run.check()
    await run.end()


class Run:
    """A broker with a small budget, what was published, and what is in others' reservations."""

    def __init__(self, folder: str, budget: int) -> None:
        self.files, self.clock, self.budget = Files(), FakeClock(), budget
        root = open_root(folder, self.files, self.clock)
        committer = Committer(NoFlusher(), on_loop=True)
        self.broker = Broker(root, committer, QueueSettings(), memory_bytes=budget)
        self.published: dict[str, tuple[bytes, Headers]] = {}
        self.reservations: list[Reservation | None] = []

    async def publish(self, queue: QueueName, size: int, priority: int | None) -> None:
        number = len(self.published)
        body = number.to_bytes(2, "big") * (size // 2)
        headers = (("ce-id", str(number)),) if size % 2 else ()
        reservation = self.broker.memory.receive(len(body))
        envelope = Envelope(priority=priority, headers=headers)
        message_id = await self.broker.publish(queue, body, envelope, reservation)
        self.published[message_id.text] = body, headers

    async def fetch(self, queue: QueueName) -> None:
        delivery = await self.broker.consuming.fetch(queue)
        if delivery is not None:
            expected = self.published.pop(delivery.id.text)
            assert (_body(self.files, delivery), delivery.headers) == expected

    async def hold(self, size: int) -> None:
        self.reservations.append(self.broker.memory.hold(size))

    async def let_go(self) -> None:
        if self.reservations:
            self.reservations.pop()

    async def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)

    async def purge(self, queue: QueueName) -> None:
        await self.broker.purge(queue)

    async def forget(self, queue: QueueName) -> None:
        (await self.broker.queue(queue)).claimer().ready.forget()

    async def check(self) -> None:
        figures = self.broker.memory.figures()
        assert figures.held_bytes <= max(self.budget, MEMORY_IN_HAND_BYTES_MIN)
        for name in QUEUES:
            queue = await self.broker.queue(name)
            assert set(queue.bodies.kept) <= set(self.published)

    async def end(self) -> None:
        self.reservations.clear()
        for name in QUEUES:
            await self.broker.delete_queue(name)
        await self.broker.drain()
        assert self.broker.memory.figures().held_bytes == 0


def _body(files: Files, delivery: Delivery) -> bytes:
    if delivery.body is not None:
        return delivery.body
    assert delivery.descriptor is not None
    try:
        return files.read(delivery.descriptor, delivery.size, delivery.offset)
    finally:
        files.close(delivery.descriptor)
