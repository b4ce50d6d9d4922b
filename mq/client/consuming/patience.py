"""When a consumer retries, and when it fails."""

import logging
from typing import Final

from mq.client.errors import ClientError, NotMq, Problem, Unanswered, one_line
from mq.client.options import Retry, Seams
from mq.client.sending import next_pause_s, pause_before

# The longest pause of a consumer, whatever Retry-After is.
CONSUME_AGAIN_S_MAX: Final = 60.0
_log: Final = logging.getLogger("mq.client")
_SERVERS_FAULT: Final = 500
_RETRYABLE: Final = frozenset({408, 429})


class Patience:
    """Until its first success a consumer retries as a call does, so that a wrong URL is reported.
    Afterwards it retries until it is closed, unless the error is final.
    """

    def __init__(self, queues: str, url: str, retry: Retry, seams: Seams) -> None:
        self._queues = queues
        self._url = url
        self._retry = retry
        self._seams = seams
        self._attempt = 1
        self._began_s = seams.clock.steady_s()
        self.has_succeeded = False

    def succeeded(self) -> None:
        """mq accepted the consumer. A further failure still lengthens the pauses."""
        self.has_succeeded = True

    def went_well(self) -> None:
        """A message came, or a fetch was answered. The next failure has the first, short pause."""
        self.has_succeeded = True
        self._attempt = 1

    async def after(self, error: ClientError) -> None:
        """Waits before the next attempt. Raises the error if there is none."""
        if not _passes(error):
            raise error
        seams, retry = self._seams, self._retry
        if self.has_succeeded:
            # Unlike a call it has no deadline, and its pause is bounded: it continues soon after mq
            # is back.
            longest_s = max(retry.longest_s, CONSUME_AGAIN_S_MAX)
            pause_s = min(pause_before(self._attempt + 1, error, retry, seams.chance()), longest_s)
            _log.warning(
                "consuming from %s at %s was interrupted: %s; retries in %.1f s",
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
    if isinstance(error, Problem):
        return error.retryable
    if isinstance(error, NotMq):
        return error.status >= _SERVERS_FAULT or error.status in _RETRYABLE
    return isinstance(error, Unanswered)
