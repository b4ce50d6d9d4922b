"""The fake: an mq in memory, for tests of programs that use one."""

import asyncio
from typing import Final

from mq.client.client import AsyncClient
from mq.client.fake.clock import FakeClock
from mq.client.fake.faults import Fault, Kind
from mq.client.fake.redelivery import expire, redeliver
from mq.client.fake.transport import FakeTransport, Inside
from mq.client.fake.view import QueueView
from mq.client.fake.world import World
from mq.client.options import Retry, Seams
from mq.client.sync.client import Client
from mq.model.settings import QueueSettings

_DEFAULTS: Final = QueueSettings()


class FakeMq:
    """An mq in memory, which answers as the server does; nothing of it survives the process. Give
    its transports to clients, move its `clock`, have requests fail, and look at its queues. From
    any thread.

    `clock`: begins at the time of now, where none is given. `settings`: those that a queue has of
    which nothing is said, as a server is told them by its flags.
    """

    def __init__(
        self, *, clock: FakeClock | None = None, settings: QueueSettings = _DEFAULTS
    ) -> None:
        self.clock = clock or FakeClock()
        self._world = World(self.clock, settings)
        self._world.on_due(
            lambda message: redeliver(self._world, message),
            lambda message: expire(self._world, message),
        )
        self._inside = Inside(self._world)
        self.clock.tell(self._moved)

    def transport(self) -> FakeTransport:
        """A transport to this fake, for one client."""
        return FakeTransport(self._inside)

    def client(self, *, token: str | None = None, retry: Retry | None = None) -> Client:
        """A client of this fake, for threads: `with fake.client() as client`. What it would wait
        before it tries again takes no time: the fake's clock jumps over it. `token`: the fake asks
        nobody for one.
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
        """A look at one of its queues, which need not be there. Raises BadName."""
        return QueueView(self._world, name)

    def fail(
        self,
        times: int = 1,
        *,
        status: int = 503,
        retry_after_s: int | None = None,
        method: str | None = None,
        queue: str | None = None,
    ) -> None:
        """So many of the next requests are not done, and answered with an error: 503, with
        `Retry-After` in whole seconds (1 where nothing is said); 500; or 502 or 504, as of a proxy.
        `method`, `queue`: only those. Raises ValueError for what HTTP cannot say.
        """
        self._fault(Fault(Kind.ANSWERED, method, queue, status, retry_after_s), times)

    def lose_answer(
        self, times: int = 1, *, method: str | None = None, queue: str | None = None
    ) -> None:
        """So many of the next requests are done, and their answers do not come: the connection is
        lost. Raises ValueError.
        """
        self._fault(Fault(Kind.UNANSWERED, method, queue), times)

    def lose_request(
        self, times: int = 1, *, method: str | None = None, queue: str | None = None
    ) -> None:
        """So many of the next requests are lost with their connections before they are done. Raises
        ValueError.
        """
        self._fault(Fault(Kind.CUT, method, queue), times)

    def refuse_connections(self, times: int = 1) -> None:
        """For so many of the next requests nothing is there to connect to. Raises ValueError."""
        self._fault(Fault(Kind.UNREACHED), times)

    def mend(self) -> None:
        """Nothing goes wrong any more of what was asked for."""
        with self._world.lock:
            self._inside.faults.clear()

    def drop_connections(self) -> None:
        """All WebSockets are lost at once; what their clients hold is released."""
        for socket in list(self._inside.sockets):
            socket.drop()

    def _fault(self, fault: Fault, times: int) -> None:
        with self._world.lock:
            self._inside.faults.add(fault, times)

    def _moved(self) -> None:
        try:
            with self._world.lock:
                self._world.catch_up()
        finally:
            self._inside.bells.ring()
