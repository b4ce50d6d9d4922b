"""How often a consumer tries again, and when it gives up."""

import logging
from typing import Final

from mq.client.errors import (
    ClientError,
    NotMq,
    NotUsable,
    Problem,
    Unanswered,
    one_line,
)
from mq.client.limits import CONSUME_AGAIN_S_MAX
from mq.client.options import Retry, Seams
from mq.client.retrying import next_pause_s, pause_before

_log: Final = logging.getLogger("mq.client")
_SERVERS_FAULT: Final = 500
_PASS: Final = frozenset({408, 429})


class Patience:
    """Before the first success a consumer tries as often as a call does, so that whoever mistook
    the address hears of it. From then on it tries for ever, unless what stands in the way is final.
    """

    def __init__(self, queues: str, url: str, retry: Retry, seams: Seams) -> None:
        self._queues = queues
        self._url = url
        self._retry = retry
        self._seams = seams
        self._has_succeeded = False
        self._attempt = 1
        self._began_s = seams.clock.steady_s()

    @property
    def has_succeeded(self) -> bool:
        """Whether it ever did."""
        return self._has_succeeded

    def succeeded(self) -> None:
        """mq said yes, but for what it may do next."""
        self._has_succeeded = True

    def went_well(self) -> None:
        """Something came of it: the next failure is the first again."""
        self._has_succeeded = True
        self._attempt = 1

    async def after(self, error: ClientError) -> None:
        """Waits before the next attempt, or raises the error: there is to be none."""
        if not _passes(error):
            raise error
        seams, retry = self._seams, self._retry
        if self._has_succeeded:
            # A call gives up by its deadline; this one is to hear soon that mq is there again.
            longest_s = max(retry.longest_s, CONSUME_AGAIN_S_MAX)
            pause_s = min(pause_before(self._attempt + 1, error, retry, seams.chance()), longest_s)
            _log.warning(
                "consuming from %s at %s was interrupted: %s; goes on in %.1f s",
                *(self._queues, self._url, one_line(error), pause_s),
            )
        else:
            passed_s = seams.clock.steady_s() - self._began_s
            found_s = next_pause_s(self._attempt, passed_s, error, retry, seams.chance())
            if found_s is None:
                raise error
            pause_s = found_s
        self._attempt += 1
        await seams.sleep(pause_s)


def _passes(error: ClientError) -> bool:
    if isinstance(error, NotUsable):
        return False
    if isinstance(error, Problem):
        return error.retryable
    if isinstance(error, NotMq):
        return error.status >= _SERVERS_FAULT or error.status in _PASS
    return isinstance(error, Unanswered)
