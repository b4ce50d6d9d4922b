"""The fake: the daemon in a test's process, in memory, with a clock that the test moves."""

import asyncio
from types import TracebackType
from typing import Final, Self

from mq.client.client import AsyncClient
from mq.client.options import Retry, Seams
from mq.client.sync import Client
from mq.model.settings import QueueSettings
from mq.testing.clock import FakeClock
from mq.testing.faults import Fault, Kind
from mq.testing.inside import Inside
from mq.testing.transport import FakeTransport
from mq.testing.view import QueueView

_DEFAULTS: Final = QueueSettings()


class FakeMq:
    """An mq for tests: the daemon, in a thread of this process, with a root in memory. It starts
    when it is first used, and ends with `close`, as a context, with the last reference to it and
    its clients, and with the process. A test makes its clients, advances its `clock`, makes
    requests fail, and reads its queues; in any thread.

    `clock`: by default one that begins now. `settings`: the defaults of its queues, as a daemon has
    them by its flags.
    """

    def __init__(
        self, *, clock: FakeClock | None = None, settings: QueueSettings = _DEFAULTS
    ) -> None:
        self.clock = clock or FakeClock()
        self._inside = Inside(self.clock, settings)

    @property
    def url(self) -> str:
        """Where it listens, for any program on this machine: `http://127.0.0.1:34567`."""
        return self._inside.url().result()

    def transport(self) -> FakeTransport:
        """A transport to this fake, for one client: `Client(transport=fake.transport())`."""
        return FakeTransport(self._inside)

    def client(self, *, token: str | None = None, retry: Retry | None = None) -> Client:
        """A client of this fake, for threads: `with fake.client() as client`. Its pauses before
        retries take no time, since they advance the fake's clock. `token`: the fake ignores it.
        """
        transport, seams = self.transport(), self._seams()
        return Client(token=token, transport=transport, retry=retry, seams=seams)

    def async_client(self, *, token: str | None = None, retry: Retry | None = None) -> AsyncClient:
        """The same for an event loop."""
        transport, seams = self.transport(), self._seams()
        return AsyncClient(token=token, transport=transport, retry=retry, seams=seams)

    def _seams(self) -> Seams:
        return Seams(sleep=self._jump, clock=self.clock)

    async def _jump(self, seconds: float) -> None:
        self.clock.advance(seconds)
        await asyncio.sleep(0)

    def queue(self, name: str) -> QueueView:
        """A view of one of its queues, which need not exist. Raises BadName."""
        return QueueView(self._inside, name)

    def fail(
        self,
        times: int = 1,
        *,
        status: int = 503,
        retry_after_s: int | None = None,
        method: str | None = None,
        queue: str | None = None,
    ) -> None:
        """The next `times` requests, of `method` and `queue` if given, are not done, and answered
        with an error: 503, with `Retry-After` in whole seconds (by default 1); 500; or 502 or 504,
        as of a proxy. Raises ValueError for others.
        """
        self._fault(Fault(Kind.ANSWERED, method, queue, status, retry_after_s), times)

    def lose_answer(
        self, times: int = 1, *, method: str | None = None, queue: str | None = None
    ) -> None:
        """The next `times` requests, of `method` and `queue` if given, are done, but their answers
        are lost with the connection. Raises ValueError.
        """
        self._fault(Fault(Kind.UNANSWERED, method, queue), times)

    def lose_request(
        self, times: int = 1, *, method: str | None = None, queue: str | None = None
    ) -> None:
        """The next `times` requests, of `method` and `queue` if given, are lost with the
        connection, and not done. Raises ValueError.
        """
        self._fault(Fault(Kind.CUT, method, queue), times)

    def refuse_connections(self, times: int = 1) -> None:
        """The next `times` requests cannot connect. Raises ValueError."""
        self._fault(Fault(Kind.UNREACHED), times)

    def mend(self) -> None:
        """Removes all faults."""
        self._inside.faults.clear()

    def drop_connections(self) -> None:
        """Ends all WebSockets; mq releases the messages that their clients hold."""
        self._inside.run(self._inside.running.drop_sockets)

    def reset(self) -> None:
        """Begins anew, without queues and faults, at the same URL. The clock goes on. Connections
        end; clients make new ones.
        """
        self.mend()
        self._inside.run(self._inside.running.reset)

    def close(self) -> None:
        """Ends the fake, and frees its memory. May be called again."""
        self._inside.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _fault(self, fault: Fault, times: int) -> None:
        self._inside.faults.add(fault, times)
