"""Runs, reads and stops a queue's shovel, which moves its sideline's messages back."""

from collections.abc import Collection

from mq.client import wire
from mq.client.sending import Again, Call, OfQueue
from mq.client.transport import Answer
from mq.client.values import ShovelProgress
from mq.client.wire import Members
from mq.protocol import sidelines


class Shovel(OfQueue):
    """A queue's shovel."""

    __slots__ = ()

    async def shovel(
        self,
        *,
        ids: Collection[str] = (),
        limit: int | None = None,
        rate: int | None = None,
        older_than_s: float | None = None,
        key: str | None = None,
        priority: str | int | None = None,
        max_receives: int | None = None,
        dry_run: bool | None = None,
    ) -> str:
        """Starts to move the sideline's messages back to the queue; returns the run's id. `rate`:
        messages a second. Only messages with these `ids`, of a `key` such as `eu-*`, of a
        `priority` such as 5 or `3..7`, sidelined at least `older_than_s` ago, with fewer than
        `max_receives` receives. `dry_run`: only counts. Raises ShovelRunning, Refused.
        Not repeated once it may be done.
        """
        query: tuple[wire.Given, ...] = (
            *((sidelines.ID, each) for each in ids),
            (sidelines.LIMIT, limit),
            (sidelines.RATE, rate),
            (sidelines.OLDER_THAN, older_than_s),
            (sidelines.KEY, key),
            (sidelines.PRIORITY, priority),
            (sidelines.MAX_RECEIVES, max_receives),
            (sidelines.DRY_RUN, dry_run),
        )
        request = wire.request_to("begin_shovel", self.name, query=query)
        # A repeat would be refused because of the run that it repeats.
        return await self._sender.send(Call(request, _id, Again.UNDONE))

    async def shovel_progress(self) -> ShovelProgress:
        """Reads the state of the running shovel, or of the last one. Raises ShovelNotFound."""
        request = wire.request_to("read_shovel", self.name)
        return await self._sender.send(Call(request, _progress))

    async def stop_shovel(self) -> ShovelProgress:
        """Stops the running shovel after the messages in flight; returns its state. Raises
        ShovelNotFound.
        """
        request = wire.request_to("stop_shovel", self.name)
        return await self._sender.send(Call(request, _progress))


def _id(answer: Answer) -> str:
    return Members.of(answer).text("id")


def _progress(answer: Answer) -> ShovelProgress:
    found = Members.of(answer)
    if "id" in found.raw:
        return found.value(ShovelProgress)
    # It never ran.
    counts = dict.fromkeys(("looked_at", "moved", "failed"), 0)
    return found.value(ShovelProgress, dry_run=False, criteria={}, stayed={}, **counts)
