"""Carrying out what became of a message: for as long as that takes, while it is the worker's."""

import logging
from typing import Final

from mq.client.errors import AlreadySettled, ClientError, NotUsable, Problem, one_line
from mq.client.message import AsyncMessage
from mq.client.options import Seams
from mq.client.worker.delivery import LOST, Delivery
from mq.client.worker.leases import Leases
from mq.client.worker.verdicts import Delete, Lapse, Release, Sideline, Verdict
from mq.model.worker_limits import SETTLE_AGAIN_S, SETTLE_AGAIN_S_MAX

_log: Final = logging.getLogger("mq.worker")
# A sideline that will not take the message, neither now nor soon.
_NO_SIDELINE: Final = frozenset({"already-sideline", "sideline-purged"})


class Settling:
    """Deletes, releases and sidelines messages."""

    def __init__(self, leases: Leases, seams: Seams) -> None:
        self._leases = leases
        self._seams = seams

    async def settle(self, delivery: Delivery, verdict: Verdict) -> None:
        """Carries it out, unless the message was settled or lost before. What fails and may succeed
        later is said again and again: until it is done, the message is lost, or this is cancelled.
        Durable on return, where it was done.
        """
        pause_s = SETTLE_AGAIN_S
        while not delivery.is_over:
            try:
                await _carry_out(delivery.message, verdict)
                return
            except (AlreadySettled, NotUsable):
                return
            except LOST:
                self._leases.lose(delivery)
                return
            except ClientError as error:
                following = _after(verdict, error)
                _tell(delivery, verdict, error, following)
                if following is None:
                    return
                if following == verdict:
                    await self._seams.sleep(pause_s)
                    pause_s = min(2 * pause_s, SETTLE_AGAIN_S_MAX)
                verdict = following


async def _carry_out(message: AsyncMessage, verdict: Verdict) -> None:
    match verdict:
        case Delete():
            await message.delete()
        case Release(delay_s, unhandled):
            await message.release(delay_s, unhandled=unhandled)
        case Sideline(reason):
            await message.sideline(reason)
        case Lapse():
            return


def _after(verdict: Verdict, error: ClientError) -> Verdict | None:
    """What is tried next; None: nothing, it comes back when it is due."""
    if isinstance(error, Problem):
        if isinstance(verdict, Sideline) and (error.slug in _NO_SIDELINE or not error.retryable):
            return Release(verdict.else_s)
        if not error.retryable:
            return None
    return verdict


def _tell(
    delivery: Delivery, verdict: Verdict, error: ClientError, following: Verdict | None
) -> None:
    if following is None:
        then = "it comes back when it is due"
    else:
        then = "tries again" if following == verdict else f"then {following.says}"
    facts = {**delivery.facts, "verdict": type(verdict).__name__.lower(), "error": str(error)}
    _log.warning(
        "what was to become of %s (%s) was not done: %s; %s",
        *(delivery.named, verdict.says, one_line(error), then),
        extra={"fields": facts},
    )
