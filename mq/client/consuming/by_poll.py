"""Consuming by long polls: for each queue a fetch that waits, again and again."""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final

from mq.client.calls import fetching
from mq.client.consuming.inbox import Inbox
from mq.client.consuming.patience import Patience
from mq.client.errors import ClientError, one_line
from mq.client.limits import CLOSE_S, POLL_WAIT_S
from mq.client.message import AsyncMessage
from mq.client.sending import Sender
from mq.client.settling import HttpSettler
from mq.client.values import Subscription

_log: Final = logging.getLogger("mq.client")


class ByPoll:
    """Fetches as many messages of each queue as may wait."""

    def __init__(self, sender: Sender, wanted: Sequence[Subscription], inbox: Inbox) -> None:
        self._sender = sender
        self._wanted = wanted
        self._inbox = inbox
        self._settler = HttpSettler(sender)

    async def run(self) -> None:
        """Brings messages into the inbox until it is cancelled. Raises what is final, and what
        stood in the way of a queue's first fetch.
        """
        try:
            async with asyncio.TaskGroup() as polls:
                for each in self._wanted:
                    polls.create_task(self._poll(each))
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None

    async def _poll(self, wanted: Subscription) -> None:
        sender = self._sender
        patience = Patience(wanted.queue, sender.shown_url, sender.retry, sender.seams)
        while True:
            count = self._inbox.wanted(wanted.queue)
            if not count:
                await self._inbox.change()
                continue
            call = fetching.fetch_many(
                wanted.queue, count, POLL_WAIT_S, wanted.visibility_s, wanted.select
            )
            try:
                rows = await self._sender.send(call)
            except ClientError as error:
                await patience.after(error)
                continue
            patience.went_well()
            for row in rows:
                self._inbox.put(AsyncMessage(wanted.queue, row, self._settler))

    async def give_back(self) -> None:
        """Releases what was fetched and not taken, within a bounded time; what is left comes back
        when it is due.
        """
        left = []
        while (message := self._inbox.take()) is not None:
            left.append(message)
        try:
            async with asyncio.timeout(CLOSE_S), asyncio.TaskGroup() as releases:
                for each in left:
                    releases.create_task(self._release(each))
        except TimeoutError:
            _log.warning(
                "not all of %d messages of %s at %s could be given back within %g s: they come "
                "back when they are due",
                *(len(left), ", ".join({each.queue for each in left})),
                *(self._sender.shown_url, CLOSE_S),
            )

    async def _release(self, message: AsyncMessage) -> None:
        try:
            await message.release(unhandled=True)
        except ClientError as error:
            _log.debug(
                "%s of %s at %s could not be given back: %s; it comes back when it is due",
                *(message.id, message.queue, self._sender.shown_url, one_line(error)),
            )
