"""Measuring requests: which operation each is, how it ended, and after how long."""

import asyncio
from collections.abc import Mapping
from typing import Final

from aiohttp import web

from mq.http.openapi.operations import DESCRIBED
from mq.metrics.meter import Meter
from mq.metrics.plan import GONE, Plan
from mq.protocol.consume.frames import Verb
from mq.protocol.routes import TABLE

OPERATION: Final = web.RequestKey("operation", int)
"""Under this name a request has its operation's number, once that is known."""

_FETCH: Final = "fetch"
_WAITING: Final = "fetch_waiting"
_UNKNOWN: Final = "unknown"
_DELIVER: Final = "consume_deliver"
_BY_FRAME: Final = {verb: f"consume_{verb.value}" for verb in Verb}
_HEAD: Final = "HEAD"
_SWITCHING: Final = 101


def _name(method: str, pattern: str) -> str:
    """As the OpenAPI document has it."""
    if method == _HEAD:
        return f"{DESCRIBED['GET', pattern].name}_head"
    return DESCRIBED[method, pattern].name


_NAMED: Final = {
    (method, pattern): _name(method, pattern)
    for pattern, methods in TABLE.items()
    for method in methods
}

PLAN: Final = Plan((*_NAMED.values(), _WAITING, _UNKNOWN, _DELIVER, *_BY_FRAME.values()))
"""What every process of this program counts."""
_NUMBERS: Final = {name: number for number, name in enumerate(PLAN.operations)}

NUMBERS: Final[Mapping[tuple[str, str], int]] = {
    key: _NUMBERS[name] for key, name in _NAMED.items()
}
"""The number of the operation of a method at a pattern."""
PUBLISHES: Final = _NUMBERS["publish"]
FETCHES: Final = _NUMBERS[_FETCH]
WAITS: Final = _NUMBERS[_WAITING]
"""Fetches that are ready to wait: how long those take says nothing of the daemon."""
CONSUMES: Final = NUMBERS["GET", "/-/consume"]
DELETES: Final = _NUMBERS["delete_message"]
UNKNOWN: Final = _NUMBERS[_UNKNOWN]
DELIVERS: Final = _NUMBERS[_DELIVER]
"""Messages claimed for a WebSocket, from when that asked for one."""
SETTLES: Final = {verb: _NUMBERS[name] for verb, name in _BY_FRAME.items()}


def number_of(request: web.BaseRequest, method: str, pattern: str) -> int:
    """The number of a request's operation."""
    number = NUMBERS[method, pattern]
    if number == FETCHES and ("wait=" in request.query_string or "Prefer" in request.headers):
        return WAITS
    return number


def outcome_of(status: int) -> int:
    """The number of the outcome of an answer with this status."""
    return status // 100 - 1


class Measured:
    """One request on its way, or nothing where none is measured."""

    def __init__(self, meter: Meter, request: web.BaseRequest) -> None:
        self._meter = meter
        self._request = request
        self._began_s = meter.steady_s()

    def ended(self, status: int) -> None:
        """It has an answer."""
        self._tell(outcome_of(status))

    def failed(self, error: BaseException) -> None:
        """It has none."""
        if isinstance(error, ConnectionError | asyncio.CancelledError):
            # A WebSocket ends by its connection, however it ends.
            is_socket = self._request.get(OPERATION) == CONSUMES
            self._tell(outcome_of(_SWITCHING) if is_socket else GONE)

    def _tell(self, outcome: int) -> None:
        number = self._request.get(OPERATION, UNKNOWN)
        self._meter.request(number, outcome, self._meter.steady_s() - self._began_s)
