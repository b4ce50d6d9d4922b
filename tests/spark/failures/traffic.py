"""A publisher and a consumer over HTTP, in threads of a test, beside a job on the same queue."""

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from harness.processes import PATIENCE_S
from spark.failures.accounts import Account

# Between two publishes, and between two fetches: so that a job finds ever more to take.
PUBLISH_PAUSE_S = 0.1
CONSUME_PAUSE_S = 0.2
# Numbers of the traffic's own messages begin here.
FIRST_NUMBER = 1_000_000


@dataclass
class Traffic:
    """One publisher and one consumer of a queue at an mq's port, from `start` to `stop`."""

    port: int
    queue: str
    account: Account
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _failed: list[BaseException] = field(default_factory=list)
    _next: int = FIRST_NUMBER

    def start(self) -> None:
        self._threads = [
            threading.Thread(target=self._keep_on, args=(self.publish_one, PUBLISH_PAUSE_S)),
            threading.Thread(target=self._keep_on, args=(self.consume_one, CONSUME_PAUSE_S)),
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Both have ended on return. Raises what they met."""
        self._over.set()
        for thread in self._threads:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()
        self._threads = []
        for error in self._failed:
            raise error

    def publish_one(self, connection: http.client.HTTPConnection) -> None:
        number = self._next
        self._next += 1
        self.publish(connection, number)

    def publish(self, connection: http.client.HTTPConnection, number: int) -> None:
        self.account.perhaps.add(number)
        connection.request("POST", f"/{self.queue}/messages", str(number).encode())
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 201, body
        self.account.published.add(number)

    def consume_one(self, connection: http.client.HTTPConnection, queue: str = "") -> bool:
        """Fetches and deletes a message (of another queue); False when there was none."""
        queue = queue or self.queue
        connection.request("GET", f"/{queue}/messages")
        answer = connection.getresponse()
        body = answer.read()
        if answer.status == 204:
            return False
        assert answer.status == 200, body
        self.account.fetched[int(body)] += 1
        message_id = answer.headers["X-Message-Id"]
        connection.request("DELETE", f"/{queue}/messages/{message_id}")
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 202, body
        return True

    def make_queue(self, queue: str) -> None:
        connection = self.connection()
        connection.request("PUT", f"/{queue}")
        assert connection.getresponse().status == 201
        connection.close()

    def connection(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)

    def _keep_on(self, do: Callable[[http.client.HTTPConnection], object], pause_s: float) -> None:
        connection = self.connection()
        try:
            while not self._over.wait(pause_s):
                do(connection)
        except BaseException as error:
            self._failed.append(error)
        finally:
            connection.close()
