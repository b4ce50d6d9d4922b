"""Consumes by long polls: a fetch after the other for each queue."""

import asyncio
import logging
from collections.abc import Sequence
from secrets import token_hex
from typing import Final

from mq.client.consuming.inbox import Inbox
from mq.client.consuming.patience import Patience
from mq.client.errors import ClientError
from mq.client.message import AsyncMessage, Settler, return_unhandled
from mq.client.messages import POLLER_NAME_BYTES, Terms, fetch_many_call
from mq.client.options import CLOSE_S
from mq.client.sending import Sender
from mq.client.together import together
from mq.client.values import Subscription

# How long mq holds a poll.
POLL_WAIT_S: Final = 20.0

_log: Final = logging.getLogger("mq.client")


class ByPoll:
    """Fetches messages of each queue into the inbox, as many as it has room for."""

    def __init__(self, sender: Sender, wanted: Sequence[Subscription], inbox: Inbox) -> None:
        self._sender = sender
        self._wanted = wanted
        self._inbox = inbox
        self._settler = Settler(sender)

    async def run(self) -> None:
        """Runs until it is cancelled. Raises final errors, and those of a queue's first fetch."""
        await together(*(self._poll(each) for each in self._wanted))

    async def _poll(self, wanted: Subscription) -> None:
        sender = self._sender
        patience = Patience(wanted.queue, sender.shown_url, sender.retry, sender.seams)
        # All polls count as one consumer, on any connection.
        name = token_hex(POLLER_NAME_BYTES)
        terms = Terms(
            POLL_WAIT_S, wanted.visibility_s, wanted.select, wanted.priority, name, wanted.packs
        )
        while True:
            count = self._inbox.wanted(wanted.queue)
            if not count:
                await self._inbox.change()
                continue
            try:
                rows = await sender.send(fetch_many_call(wanted.queue, count, terms))
            except ClientError as error:
                await patience.after(error)
                continue
            patience.went_well()
            for row in rows:
                message = AsyncMessage(wanted.queue, row, self._settler)
                self._inbox.put(message)

    async def give_back(self) -> None:
        """Releases the messages that the program did not take, within a bounded time. Those left
        are delivered again when they are due.
        """
        left = []
        while (message := self._inbox.take()) is not None:
            left.append(message)
        try:
            async with asyncio.timeout(CLOSE_S):
                await return_unhandled(left)
        except TimeoutError:
            _log.warning(
                "the consumer of %s at %s could not release all of its %d messages within %g s: "
                "the others are delivered again when they are due",
                *(", ".join({each.queue for each in left}), self._sender.shown_url),
                *(len(left), CLOSE_S),
            )
