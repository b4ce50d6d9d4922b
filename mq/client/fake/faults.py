"""What a test has go wrong: pure."""

from collections import deque
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

from mq.client.fake.asked import Asked, Reply, json_reply
from mq.client.fake.limits import FAULTS_MAX, RETRY_AFTER_S_MAX
from mq.model.errors import Unavailable
from mq.model.limits import RETRY_AFTER_S
from mq.protocol.problems import INTERNAL, MEDIA_TYPE, problem_members, problem_of

_UNAVAILABLE: Final = 503
_INTERNAL: Final = 500
_OF_PROXIES: Final = (502, 504)
STATUSES: Final = (_INTERNAL, 502, _UNAVAILABLE, 504)
"""Those that a request may be failed with."""


class Kind(Enum):
    """What goes wrong."""

    ANSWERED = "answered"
    """The request is not done; it is answered with an error."""
    UNREACHED = "unreached"
    """Nothing is there to connect to."""
    CUT = "cut"
    """The connection ends before the request was done."""
    UNANSWERED = "unanswered"
    """The request is done, and the connection ends before the answer."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One request is to go wrong: of this method, and of this queue, where these are said."""

    kind: Kind
    method: str | None = None
    queue: str | None = None
    status: int = _UNAVAILABLE
    retry_after_s: int | None = None

    def fits(self, asked: Asked) -> bool:
        """Whether the request is one that it is for."""
        if self.method is not None and asked.method != self.method:
            return False
        return self.queue is None or asked.path.split("/")[1:2] == [self.queue]

    def reply(self) -> Reply:
        """What answers the request. A proxy's error is none of mq's problems."""
        if self.status in _OF_PROXIES:
            said = f"<h1>{self.status} {HTTPStatus(self.status).phrase}</h1>\n".encode("ascii")
            return Reply(self.status, {"Content-Type": "text/html"}, said)
        problem = INTERNAL if self.status == _INTERNAL else problem_of(Unavailable)
        headers = {}
        if self.status == _UNAVAILABLE:
            headers["Retry-After"] = str(self.retry_after_s or RETRY_AFTER_S)
        content = problem_members(problem, {})
        return json_reply(content, problem.status, headers, MEDIA_TYPE)


class Faults:
    """What is still to go wrong, in the order in which it was asked for."""

    def __init__(self) -> None:
        self._faults: deque[Fault] = deque()

    def __len__(self) -> int:
        return len(self._faults)

    def add(self, fault: Fault, times: int) -> None:
        """So many requests are to go wrong. Raises ValueError for what HTTP cannot say."""
        if not isinstance(times, int) or not 1 <= times <= FAULTS_MAX - len(self._faults):
            raise ValueError(f"times is a whole number from 1, {FAULTS_MAX} in all")
        if fault.status not in STATUSES:
            raise ValueError(f"a status is one of {', '.join(map(str, STATUSES))}")
        after_s = fault.retry_after_s
        if after_s is not None and fault.status != _UNAVAILABLE:
            raise ValueError("retry_after_s goes with the status 503")
        if after_s is not None and not _is_pause(after_s):
            raise ValueError(f"retry_after_s is whole seconds from 1 to {RETRY_AFTER_S_MAX}")
        self._faults.extend([fault] * times)

    def next(self, asked: Asked) -> Fault | None:
        """What goes wrong with this request; None: nothing does."""
        for fault in self._faults:
            if fault.fits(asked):
                self._faults.remove(fault)
                return fault
        return None

    def clear(self) -> None:
        """Nothing goes wrong any more."""
        self._faults.clear()


def _is_pause(seconds: int) -> bool:
    is_whole = isinstance(seconds, int) and not isinstance(seconds, bool)
    return is_whole and 1 <= seconds <= RETRY_AFTER_S_MAX
