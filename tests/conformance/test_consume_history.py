"""Many connections that do what they like, to two servers on one root: what each was
given and told is held against what a queue may do.
"""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
from harness.api import make_queue, publish_lines
from harness.consuming import Consumer, Message, consuming
from harness.folders import message_files
from harness.server import Serve, Server
from harness.waiting import comes_true

QUEUES = ("a", "b", "c")
MESSAGES = 30
CLIENTS = 5


@dataclass
class Model:
    """What became of the messages, as their clients were told. `holders`: who has one now."""

    bodies: dict[str, bytes]
    receives: Counter[str] = field(default_factory=Counter)
    holders: dict[str, object] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    """By id: acked or sidelined."""

    def delivered(self, to: object, message: Message) -> None:
        """Nobody else has it, it is not gone, and each time it counts up."""
        assert message.body == self.bodies[message.id]
        assert message.id not in self.holders, "two have it"
        assert message.id not in self.gone, "it came back"
        # What was claimed for a connection and not sent, when it ended, counted too.
        assert message.receives > self.receives[message.id]
        self.receives[message.id] = message.receives
        self.holders[message.id] = to

    def lets_go(self, message_id: str) -> None:
        """Its holder gives it back: from here on others may get it."""
        del self.holders[message_id]


class Client:
    """One that connects, does this and that with what comes, and goes, again and again."""

    def __init__(self, server: Server, model: Model, chance: random.Random) -> None:
        self.server = server
        self.model = model
        self.chance = chance

    async def run(self) -> None:
        while len(self.model.gone) < len(self.model.bodies):
            queues = self.chance.sample(QUEUES, self.chance.randint(1, len(QUEUES)))
            async with consuming(self.server) as consumer:
                wanted = [
                    {
                        "queue": queue,
                        "credit": self.chance.randint(0, 8),
                        "priority": self.chance.choice((0, 0, 5)),
                        "visibility_s": 600,
                    }
                    for queue in queues
                ]
                assert set(await consumer.statuses(subscribe=wanted)) == {200}
                for _ in range(self.chance.randint(5, 40)):
                    await self.act(consumer, queues)
                # From its close on others may have what it held, before we hear of that.
                for message_id, holder in list(self.model.holders.items()):
                    if holder is consumer:
                        self.model.lets_go(message_id)
                if self.chance.random() < 0.5:
                    consumer.hang_up()

    async def act(self, consumer: Consumer, queues: list[str]) -> None:
        await self.take(consumer)
        held = [each for each, holder in self.model.holders.items() if holder is consumer]
        some = self.chance.sample(held, min(len(held), self.chance.randint(1, 4)))
        what = self.chance.random()
        if what < 0.25 or not some:
            await consumer.credit(self.chance.choice(queues), self.chance.randint(1, 5))
        elif what < 0.35:
            for message_id in some:
                self.model.lets_go(message_id)
            assert await consumer.statuses(release=some) == [200] * len(some)
        else:
            verb, status = ("ack", 202) if what < 0.9 else ("sideline", 200)
            for message_id in some:
                self.model.gone[message_id] = verb
            assert await consumer.statuses(**{verb: some}) == [status] * len(some)
            for message_id in some:
                self.model.lets_go(message_id)

    async def take(self, consumer: Consumer) -> None:
        """What has come by the time that a command is answered."""
        assert await consumer.statuses(ack=["unknown"]) == [404]
        while consumer.messages:
            self.model.delivered(consumer, consumer.messages.popleft())


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_connections_do_each_message_is_somebody_s_once(
    serve: Serve, seed: int
) -> None:
    chance = random.Random(seed)
    servers = [await serve(), await serve()]
    bodies: dict[str, bytes] = {}
    for queue in QUEUES:
        await make_queue(servers[0], queue)
        told = [f"{queue}{n}".encode() for n in range(MESSAGES)]
        bodies |= zip(await publish_lines(servers[0], told, queue), told, strict=True)
    model = Model(bodies)
    clients = [
        Client(servers[n % 2], model, random.Random(chance.random())) for n in range(CLIENTS)
    ]
    async with asyncio.timeout(120):
        await asyncio.gather(*(client.run() for client in clients))
    files = message_files(servers[0].root)
    acked = [each for each, verb in model.gone.items() if verb == "ack"]
    assert sorted(name.partition(":")[2] for name in files["remove"]) == sorted(acked)
    await comes_true(lambda: not message_files(servers[0].root)["delay"], "all is settled")
    left = [name.split(":") for name in message_files(servers[0].root)["queues"]]
    assert {queue.removesuffix("_SIDELINE") for queue, _ in left} <= set(QUEUES)
    assert all(queue.endswith("_SIDELINE") for queue, _ in left)
    assert sorted(text for _, text in left) == sorted(model.gone.keys() - set(acked))
