"""The faults that a test requests."""

import threading
from collections import deque
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

from mq.client.transport import Answer, Request
from mq.http.answers import problem_answer
from mq.model.errors import Unavailable
from mq.protocol.problems import INTERNAL, RETRY_AFTER_S, problem_of

_UNAVAILABLE: Final = 503
_INTERNAL: Final = 500
_OF_PROXIES: Final = (502, 504)
FAULTS_MAX: Final = 10_000
_RETRY_AFTER_S_MAX: Final = 3600
STATUSES: Final = (_INTERNAL, 502, _UNAVAILABLE, 504)
"""The statuses of errors."""


class Kind(Enum):
    """A kind of fault."""

    ANSWERED = "answered"
    """The request is not done, and answered with an error."""
    UNREACHED = "unreached"
    """The connection is refused."""
    CUT = "cut"
    """The connection ends, and the request is not done."""
    UNANSWERED = "unanswered"
    """The request is done, and the connection ends before the answer."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The fault of one request, of `method` and `queue` if given."""

    kind: Kind
    method: str | None = None
    queue: str | None = None
    status: int = _UNAVAILABLE
    retry_after_s: int | None = None

    def fits(self, request: Request) -> bool:
        if self.method is not None and request.method != self.method:
            return False
        return self.queue is None or request.path.split("/")[1:2] == [self.queue]

    def answer(self) -> Answer:
        """The answer to the request. A proxy's error is no problem of mq's."""
        if self.status in _OF_PROXIES:
            html = f"<h1>{self.status} {HTTPStatus(self.status).phrase}</h1>\n".encode("ascii")
            return Answer(self.status, (("Content-Type", "text/html"),), html)
        if self.status == _INTERNAL:
            found = problem_answer(INTERNAL)
        else:
            found = problem_answer(problem_of(Unavailable))
            after_s = {"Retry-After": str(self.retry_after_s or RETRY_AFTER_S)}
            found = found._replace(headers={**found.headers, **after_s})
        return Answer(found.status, tuple(found.headers.items()), found.body)


class Faults:
    """The faults of the next requests, in order, in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._faults: deque[Fault] = deque()

    def add(self, fault: Fault, times: int) -> None:
        """Adds a fault for `times` requests. Raises ValueError."""
        if not isinstance(times, int) or not 1 <= times <= FAULTS_MAX - len(self._faults):
            raise ValueError(
                f"times must be a whole number from 1, and {FAULTS_MAX} in all, not {times!r}"
            )
        if fault.status not in STATUSES:
            raise ValueError(
                f"status must be one of {', '.join(map(str, STATUSES))}, not {fault.status!r}"
            )
        after_s = fault.retry_after_s
        if after_s is not None and fault.status != _UNAVAILABLE:
            raise ValueError(f"retry_after_s goes with the status 503, not {fault.status}")
        if after_s is not None and not _is_pause(after_s):
            raise ValueError(
                f"retry_after_s must be whole seconds from 1 to {_RETRY_AFTER_S_MAX}, not {after_s}"
            )
        with self._lock:
            self._faults.extend([fault] * times)

    def next(self, request: Request) -> Fault | None:
        """Takes the fault of this request; None: it has none."""
        with self._lock:
            found = next((each for each in self._faults if each.fits(request)), None)
            if found is not None:
                self._faults.remove(found)
            return found

    def clear(self) -> None:
        with self._lock:
            self._faults.clear()


def _is_pause(seconds: int) -> bool:
    is_whole = isinstance(seconds, int) and not isinstance(seconds, bool)
    return is_whole and 1 <= seconds <= _RETRY_AFTER_S_MAX
