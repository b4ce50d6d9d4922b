"""What becomes of messages that a connection holds: acks, releases and sidelines.

Each is of the delivery that the client had: one that has been delivered again since is another's,
and stays as it is, as with `If-Match`.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final

from mq.broker.broker import Broker
from mq.model.errors import Busy, MessageNotFound, MqError, Unavailable
from mq.model.message import Delivery, GivenBack
from mq.protocol.consume.frames import Settle, Verb
from mq.protocol.consume.session import Session

STATUSES: Final = {Verb.ACK: 202, Verb.RELEASE: 200, Verb.SIDELINE: 200}


async def settle(
    broker: Broker, session: Session, asked: Settle
) -> dict[str, BaseException | None]:
    """Does that to each message once; what each ended with, None when it is done. One for which
    there was no storage is held on. Durable: each that is done.
    """
    taken = session.settle(asked.ids)
    going = {
        text: asyncio.ensure_future(_begin(broker, asked, held))
        for text, held in taken.items()
        if isinstance(held, Delivery)
    }
    if going:
        await asyncio.wait(going.values())
    ends: dict[str, BaseException | None] = {}
    for text, held in taken.items():
        if isinstance(held, MessageNotFound):
            ends[text] = held
            continue
        error = going[text].exception()
        is_kept = error is not None and (
            isinstance(error, Unavailable | Busy) or not isinstance(error, MqError)
        )
        session.settled(held, is_kept)
        ends[text] = error
    return ends


def _begin(broker: Broker, asked: Settle, held: Delivery) -> Awaitable[object]:
    def is_its(receives: int) -> bool:
        return receives == held.stamp.receives

    match asked.verb:
        case Verb.ACK:
            return broker.begin_remove(held.queue, held.id, is_its)
        case Verb.RELEASE:
            given = GivenBack.UNHANDLED if asked.unhandled else GivenBack.YES
            return broker.reschedule(held.queue, held.id, 0, is_its, given)
        case Verb.SIDELINE:
            return broker.sideline(held.queue, held.id, if_receives=is_its)
