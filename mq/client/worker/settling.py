"""Settles messages by their handlers' verdicts, with retries while a message is the worker's."""

import logging
from typing import Final

from mq.client.errors import AlreadySettled, ClientError, NotUsable, Problem, one_line
from mq.client.message import AsyncMessage
from mq.client.options import Seams
from mq.client.worker.leases import LOST, Delivery, Leases
from mq.client.worker.verdicts import Delete, Lapse, Release, Sideline, Verdict, with_failure

# How soon a delete or release that failed is repeated.
SETTLE_AGAIN_S: Final = 0.5
SETTLE_AGAIN_S_MAX: Final = 5.0

_log: Final = logging.getLogger("mq.worker")
# Of a disk that has no room for a failure: the message is settled without one.
_FULL: Final = frozenset({"no-space", "no-inodes", "quota-exceeded"})
# The problems of a sideline that will not accept the message.
_NO_SIDELINE: Final = frozenset({"already-sideline", "sideline-purged"})


class Settling:
    """Deletes, releases and sidelines messages."""

    def __init__(self, leases: Leases, seams: Seams) -> None:
        self._leases = leases
        self._seams = seams

    async def settle(self, delivery: Delivery, verdict: Verdict) -> None:
        """Settles a message that is neither settled nor lost. Retries until that succeeds, the
        error is final, the message is lost, or this is cancelled. A success is durable on return.
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
                _report(delivery, verdict, error, following)
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
        case Release(delay_s, unhandled, failure):
            await message.release(delay_s, unhandled=unhandled, reason=failure)
        case Sideline(reason, _, failure):
            await message.sideline(failure or reason)
        case Lapse():
            return


def _after(verdict: Verdict, error: ClientError) -> Verdict | None:
    """The next attempt's verdict; None: there is none."""
    if isinstance(error, Problem):
        if isinstance(verdict, Sideline) and (error.slug in _NO_SIDELINE or not error.retryable):
            return Release(verdict.else_s, failure=verdict.failure)
        if not error.retryable:
            return None
        if error.slug in _FULL:
            return with_failure(verdict, None)
    return verdict


def _report(
    delivery: Delivery, verdict: Verdict, error: ClientError, following: Verdict | None
) -> None:
    if following is None:
        then = "it is delivered again when it is due"
    else:
        then = "retries" if following == verdict else f"instead, {following.says}"
    facts = {**delivery.facts, "verdict": type(verdict).__name__.lower(), "error": str(error)}
    _log.warning(
        "could not settle %s (%s): %s; %s",
        *(delivery.named, verdict.says, one_line(error), then),
        extra={"fields": facts},
    )
