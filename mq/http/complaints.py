"""What went wrong: a problem for the client, and for the log what only the log may know."""

import logging
from typing import Final

from mq.access.errors import Forbidden, Unauthenticated
from mq.http.answers import Answer
from mq.http.problems import error_answer, problem_answer
from mq.model.clock import Clock
from mq.model.errors import MqError, Unavailable
from mq.model.limits import COMPLAINT_EVERY_S
from mq.protocol.problems import INTERNAL, facts_of, problem_for, problem_members

_log = logging.getLogger("mq.http")

_COMPLAINTS: Final = (Unavailable, Unauthenticated, Forbidden)


class Complaints:
    """Answers errors, and logs why a request was answered 503, and whom it was refused to: the
    first of a kind, and then one a second with how many there were.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._said: dict[type[MqError], tuple[float, int]] = {}

    def answer(self, error: BaseException, method: str, path: str) -> Answer:
        """The answer to a request that ended with the error."""
        if isinstance(error, MqError):
            if isinstance(error, _COMPLAINTS):
                self._complain(error, method, path)
            return error_answer(error)
        fields = {"method": method, "path": path}
        _log.error("a request failed", exc_info=error, extra={"fields": fields})
        return problem_answer(INTERNAL)

    def item(self, error: BaseException, method: str, path: str) -> dict[str, object]:
        """The problem of one item of an answer: like `answer`, as members."""
        if not isinstance(error, MqError):
            self.answer(error, method, path)
            return problem_members(INTERNAL, {})
        if isinstance(error, _COMPLAINTS):
            self._complain(error, method, path)
        return problem_members(problem_for(error), facts_of(error))

    def _complain(self, error: MqError, method: str, path: str) -> None:
        now_s = self._clock.steady_s()
        said_s, more = self._said.get(type(error), (float("-inf"), 0))
        if now_s - said_s < COMPLAINT_EVERY_S:
            self._said[type(error)] = (said_s, more + 1)
            return
        self._said[type(error)] = (now_s, 0)
        _log.warning(
            "unavailable" if isinstance(error, Unavailable) else "refused",
            extra={
                "fields": {
                    "problem": problem_for(error).slug,
                    "method": method,
                    "path": path,
                    "error": str(error),
                    "more_since": more,
                }
            },
        )
