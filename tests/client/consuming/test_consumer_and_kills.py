"""mq is killed and started again while programs consume ahead: no message that no handler saw goes
to the sideline.
"""

import socket
from pathlib import Path

from harness.processes import Process, Processes, eventually

from mq import Client
from mq.client.sync import Queue

MESSAGES = 10
MAX_RECEIVES = 3


def test_what_was_prefetched_and_given_back_survives_kills_of_mq(
    root: Path, daemons: Processes
) -> None:
    port = _free_port()
    daemons.mover("--root", str(root))
    mq = _started(daemons, root, port)
    with Client(mq.url) as client:
        queue = _filled(client)
        handled = set()
        for _ in range(MAX_RECEIVES + 2):
            with queue.consume(prefetch=MESSAGES, via="websocket") as messages:
                message = messages.next()
                handled.add(message.text())
                message.delete()
                left = MESSAGES - len(handled)
                eventually(lambda left=left: queue.describe().in_flight == left, "all fetched")
            eventually(lambda left=left: queue.describe().ready == left, "all given back")
            mq.kill()
            mq = _started(daemons, root, port)
        stay = queue.peek()
        assert {message.body.decode() for message in stay} | handled == set(
            map(str, range(MESSAGES))
        )
        # They were delivered more often than their queue allows: those deliveries do not count.
        assert {message.receives for message in stay} == {MAX_RECEIVES + 2}
        assert queue.describe().sidelined == 0


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _started(daemons: Processes, root: Path, port: int) -> Process:
    return daemons.mq(root, "--visibility", "2", port=port)


def _filled(client: Client) -> Queue:
    queue = client.queue("orders")
    queue.create()
    queue.change_settings({"max_receives": MAX_RECEIVES})
    for number in range(MESSAGES):
        queue.publish(str(number))
    return queue
