"""What a test must know of a server in its own event loop, and no interface tells without asking
the disk: tests wait for it while the disk is held, or count what is asked of the disk.

The private attributes that tests use of a server are all here, each with the reason.
"""

from harness.server import Server
from mq.broker.broker import Broker
from mq.broker.queue import Queue
from mq.http.connection import Connection


def broker(server: Server) -> Broker:
    """The server's broker."""
    assert server.daemon.service is not None
    return server.daemon.service.broker


def queue_of(server: Server, queue: str) -> Queue:
    """A queue that the server has used."""
    found = broker(server).used(queue)
    assert found is not None
    return found


def protocols(server: Server) -> set[Connection]:
    """The server's side of each connection."""
    serving = server.daemon.server
    return set() if serving is None else serving.connections


def connections(server: Server) -> int:
    """How many clients the server has; their handlers are cancelled as they go."""
    return len(protocols(server))


def goes_as_it_is_answered(server: Server) -> None:
    """The client whose request is in hand goes in the turn of the loop in which what it asked for
    is done.
    """
    # No client can hang up in one chosen turn of a server's loop.
    (protocol,) = [each for each in protocols(server) if each._pending]  # noqa: SLF001
    pending, transport = protocol._pending, protocol.transport  # noqa: SLF001
    assert pending is not None
    assert transport is not None
    pending.future.add_done_callback(lambda _: protocol.connection_lost(None))
    pending.future.add_done_callback(lambda _: transport.abort())


def operations_waiting(server: Server) -> int:
    """How many durable operations wait for their commit group."""
    return broker(server).committer.waiting


def publishes_under_way(server: Server, queue: str) -> int:
    """How many messages of a queue are being published; some together, as one operation."""
    return len(queue_of(server, queue)._publishing)  # noqa: SLF001


def fetches_waiting(server: Server, queue: str) -> int:
    """How many fetches of a queue wait for a message."""
    found = queue_of(server, queue)
    claims = found.claimer()._claims  # noqa: SLF001
    return len(found.lines) + sum(not each.waiter.is_gone for each in claims)


def consumers(server: Server, queue: str) -> int:
    """How many consumers a queue has, long polls among them."""
    found = broker(server).used(queue)
    return 0 if found is None else found.consumers


def interested(server: Server, queue: str) -> int:
    """How many wait for a message of a queue, and have found none."""
    found = broker(server).used(queue)
    return 0 if found is None else sum(not each.is_fresh for each in found.lines)


def background_work(server: Server) -> int:
    """How many tasks go on that no request waits for: releases, retiring a deleted queue."""
    releasing = sum(len(each.claimer().background) for each in broker(server).in_use())
    return len(broker(server).background) + releasing


def selections(server: Server, queue: str) -> tuple[int, int, int]:
    """How many selections a process keeps of a queue, and how many folders and names more it may
    remember of those of all queues.
    """
    found = broker(server).used(queue)
    allowances = broker(server).scan_limits.allowances
    kept = 0 if found is None else selections_kept(found)
    return kept, allowances.folders.left, allowances.names.left


def selections_kept(queue: Queue) -> int:
    """How many selections are kept of a queue, also once it is gone."""
    # Nor how many are remembered of one queue.
    return len(queue._selections)  # noqa: SLF001


def in_use(server: Server) -> set[str]:
    """The queues that the server has used."""
    return {each.name.text for each in broker(server).in_use()}


async def stop_following(server: Server) -> None:
    """From here on the server asks nothing of the disk that no request asks of it: it does not look
    whether other processes have changed queues, and writes no totals or trends.
    """
    assert server.daemon.service is not None
    await server.daemon.service.following.stop()
    for task in server.daemon._tasks:  # noqa: SLF001
        task.cancel()
