"""A client that waits for a message, and one that publishes it: over raw sockets, in one thread,
so that little of the bench's own is in what it measures.
"""

import json
import socket
from typing import Final, Protocol, Self

from deploy.bench.connection import BINARY, Connection, WebSocket, request
from deploy.bench.load import BenchError
from deploy.bench.servers import MESSAGES, QUEUE

_PATIENCE_S: Final = 60.0
_RECEIVED_BYTES_MAX: Final = 1 << 16


class Pair(Protocol):
    """One waits and one publishes, in turn; close it."""

    def wait(self) -> None:
        """Asks for the next message; the queue is empty."""

    def publish(self, body: bytes) -> None:
        """Sends one, and does not wait for the answer."""

    def delivered(self) -> bytes:
        """Waits for all of the message; its body."""
        ...

    def settle(self) -> None:
        """Reads what else was answered, and deletes the message where that is another request."""

    def close(self) -> None:
        """Closes both connections."""


class LongPoll:
    """An HTTP long poll of mq; the publish may go to another process of the same root."""

    def __init__(self, waits_at: int, publishes_at: int) -> None:
        self._waits, self._publishes = Connection(waits_at), Connection(publishes_at)
        self._id = ""

    def wait(self) -> None:
        """As Pair says, like all here."""
        self._waits.send(request("GET", f"{MESSAGES}?wait=60"))

    def publish(self, body: bytes) -> None:
        """See there."""
        self._publishes.send(request("POST", MESSAGES, body))

    def delivered(self) -> bytes:
        """See there."""
        answer = self._waits.receive(200)
        self._id = answer.id
        return answer.body

    def settle(self) -> None:
        """See there."""
        self._publishes.receive(201)
        self._waits.ask(request("DELETE", f"{MESSAGES}/{self._id}"), 202)

    def close(self) -> None:
        """See there."""
        self._waits.close()
        self._publishes.close()


class Consume:
    """A WebSocket of mq that gives credit for one message at a time."""

    def __init__(self, waits_at: int, publishes_at: int) -> None:
        self._waits, self._publishes = WebSocket(waits_at), Connection(publishes_at)
        self._id = ""
        self._waits.command(subscribe=[{"queue": QUEUE, "credit": 0}])
        self._result()

    def wait(self) -> None:
        """As Pair says, like all here."""
        self._waits.command(credit={QUEUE: 1})
        self._result()

    def publish(self, body: bytes) -> None:
        """See there."""
        self._publishes.send(request("POST", MESSAGES, body))

    def delivered(self) -> bytes:
        """See there."""
        _, header = self._waits.frame()
        opcode, body = self._waits.frame()
        if opcode != BINARY:
            raise BenchError(f"a body was expected, not {body[:60]!r}")
        self._id = json.loads(header)["id"]
        return body

    def settle(self) -> None:
        """See there."""
        self._publishes.receive(201)
        self._waits.command(ack=[self._id])
        self._result()

    def close(self) -> None:
        """See there."""
        self._waits.close()
        self._publishes.close()

    def _result(self) -> None:
        [result] = json.loads(self._waits.frame()[1])["results"]
        if result["status"] not in (200, 202):
            raise BenchError(f"a command failed: {result}")


class Stream:
    """A connection whose answers are lines, and bytes of which a line tells how many."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._held = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def send(self, data: bytes) -> None:
        """Sends all of it."""
        self._socket.sendall(data)

    def line(self) -> bytes:
        """The next line, without its end."""
        while (end := self._held.find(b"\r\n")) < 0:
            self._receive()
        line, self._held = self._held[:end], self._held[end + 2 :]
        return line

    def some(self, count: int) -> bytes:
        """The next `count` of what comes."""
        while len(self._held) < count:
            self._receive()
        found, self._held = self._held[:count], self._held[count:]
        return found

    def expect(self, beginning: bytes) -> bytes:
        """The next line, which must begin so. Raises BenchError."""
        line = self.line()
        if not line.startswith(beginning):
            raise BenchError(f"{beginning!r} was expected, not {line!r}")
        return line

    def close(self) -> None:
        """Closes it."""
        self._socket.close()

    def _receive(self) -> None:
        part = self._socket.recv(_RECEIVED_BYTES_MAX)
        if not part:
            raise BenchError("the server closed the connection")
        self._held += part


class Reserve:
    """beanstalkd's reserve."""

    def __init__(self, port: int) -> None:
        self._waits, self._publishes = Stream(port), Stream(port)
        self._id = b""

    def wait(self) -> None:
        """As Pair says, like all here."""
        self._waits.send(b"reserve\r\n")

    def publish(self, body: bytes) -> None:
        """See there."""
        self._publishes.send(b"put 0 0 60 %d\r\n%b\r\n" % (len(body), body))

    def delivered(self) -> bytes:
        """See there."""
        _, self._id, size = self._waits.expect(b"RESERVED ").split(b" ")
        return self._waits.some(int(size) + 2)[:-2]

    def settle(self) -> None:
        """See there."""
        self._publishes.expect(b"INSERTED ")
        self._waits.send(b"delete %b\r\n" % self._id)
        self._waits.expect(b"DELETED")

    def close(self) -> None:
        """See there."""
        self._waits.close()
        self._publishes.close()


class Pop:
    """Redis's BLPOP: what it gives is gone from the list, whatever becomes of who got it."""

    def __init__(self, port: int) -> None:
        self._waits, self._publishes = Stream(port), Stream(port)

    def wait(self) -> None:
        """As Pair says, like all here."""
        self._waits.send(_resp(b"BLPOP", QUEUE.encode(), b"60"))

    def publish(self, body: bytes) -> None:
        """See there."""
        self._publishes.send(_resp(b"RPUSH", QUEUE.encode(), body))

    def delivered(self) -> bytes:
        """See there."""
        self._waits.expect(b"*2")
        for _ in range(2):
            size = int(self._waits.expect(b"$")[1:])
            value = self._waits.some(size + 2)[:-2]
        return value

    def settle(self) -> None:
        """See there."""
        self._publishes.expect(b":")

    def close(self) -> None:
        """See there."""
        self._waits.close()
        self._publishes.close()


def _resp(*words: bytes) -> bytes:
    """A command as Redis reads it."""
    return b"*%d\r\n" % len(words) + b"".join(
        b"$%d\r\n%b\r\n" % (len(each), each) for each in words
    )
