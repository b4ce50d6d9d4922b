"""What a test must know of a server to wait for it, and no interface tells."""

from harness.server import Server
from mq.broker.accounts import Totals
from mq.http.connection import Connection
from mq.names import QueueName


def connections(server: Server) -> int:
    """How many clients the server has; their handlers are cancelled as they go."""
    runner = server.daemon._runner
    assert runner is not None
    assert runner.server is not None
    # A handler that still cleans up behind a client that went counts no more.
    return sum(1 for each in runner.server.connections if each.transport is not None)


def in_hand_directly(server: Server) -> int:
    """How many requests are in hand on the direct way."""
    runner = server.daemon._runner
    assert runner is not None
    assert runner.server is not None
    found = [each for each in runner.server.connections if isinstance(each, Connection)]
    return sum(1 for each in found if each._in_hand is not None)


def operations_waiting(server: Server) -> int:
    """How many durable operations wait for their commit group."""
    broker = server.daemon._broker
    assert broker is not None
    return broker.committer.waiting


def fetches_waiting(server: Server, queue: str) -> int:
    """How many fetches of a queue wait for a message."""
    broker = server.daemon._broker
    assert broker is not None
    return broker._queues[queue]._fetching.waiters.drop_gone()


def consumers(server: Server, queue: str) -> int:
    """How many consumers a queue has, long polls among them."""
    broker = server.daemon._broker
    assert broker is not None
    found = broker.used(queue)
    return 0 if found is None else len(found._consumers)


def interested(server: Server, queue: str) -> int:
    """How many wait for a message of a queue, and have found none."""
    broker = server.daemon._broker
    assert broker is not None
    known = broker._queues.get(queue)
    return 0 if known is None else sum(1 for _ in known.interests)


def background_work(server: Server) -> int:
    """How many tasks go on that no request waits for: releases, retiring a deleted queue."""
    broker = server.daemon._broker
    assert broker is not None
    releasing = sum(len(queue._fetching.handling) for queue in broker._queues.values())
    return len(broker.background) + releasing


def totals(server: Server, queue: str) -> Totals:
    """What the server did with a queue, as of now."""
    broker = server.daemon._broker
    assert broker is not None
    return broker._queues[queue].totals


def hears(server: Server, queue: str) -> bool:
    """Whether the server is told what comes to a queue's folder."""
    broker = server.daemon._broker
    assert broker is not None
    return broker.consuming.watching._listening.hears(QueueName.parse(queue))


def selections(server: Server, queue: str) -> tuple[int, int, int]:
    """How many selections a process keeps of a queue, and how many folders and names more it may
    remember of those of all queues.
    """
    broker = server.daemon._broker
    assert broker is not None
    found = broker.used(queue)
    allowances = broker._host.shared.allowances
    kept = 0 if found is None else len(found._selections)
    return kept, allowances.folders.left, allowances.names.left


def in_use(server: Server) -> set[str]:
    """The queues that the server has used."""
    broker = server.daemon._broker
    assert broker is not None
    return {each.name.text for each in broker.in_use()}


def visibility_s(server: Server, queue: str) -> float:
    """What the server takes for a queue's visibility when nobody asks for it."""
    broker = server.daemon._broker
    assert broker is not None
    return broker._queues[queue].settings.visibility_s


async def stop_following(server: Server) -> None:
    """From here on the server asks nothing of the disk that no request asks of it: it does not look
    whether other processes have changed queues.
    """
    following = server.daemon._following
    assert following is not None
    await following.stop()
