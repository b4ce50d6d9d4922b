"""What came of the requests of one kind: publish, fetch or delete. Pure."""

import re
from dataclasses import dataclass, field
from typing import Final

from mq.client.errors import ClientError, Problem
from mq.tools.mqctl.bench.histogram import Histogram
from mq.tools.mqctl.bench.limits import ERROR_KINDS_MAX

_INNER_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
_OTHERS: Final = "others"


@dataclass(slots=True)
class Tally:
    """Counts. Latencies are of requests that were answered well, and for a rate that was said they
    begin when the request was due, not when there was a connection for it: what is late counts as
    late (no coordinated omission). `first_s`, `last_s`: from the first request to the last answer.
    """

    name: str
    requests: int = 0
    messages: int = 0
    failed: int = 0
    """Messages that were not done, whose errors are in `errors`."""
    uncertain: int = 0
    """Of these, messages that may be there all the same."""
    empty: int = 0
    """Fetches that found nothing; their latencies are not counted."""
    unsent: int = 0
    """Requests whose turn came and for which there was no connection until the end."""
    errors: dict[str, int] = field(default_factory=dict)
    latencies: Histogram = field(default_factory=Histogram)
    first_s: float | None = None
    last_s: float | None = None

    def begin(self, sent_s: float) -> None:
        """A request is sent."""
        if self.first_s is None:
            self.first_s = sent_s

    def done(self, due_s: float, ended_s: float, messages: int) -> None:
        """A request was answered well. `due_s`: when it was due, or sent where nothing was due."""
        self.requests += 1
        self.messages += messages
        self.latencies.add(max(0.0, ended_s - due_s))
        self.last_s = ended_s if self.last_s is None else max(self.last_s, ended_s)

    def refuse(self, error: ClientError, messages: int, *, may_be_done: bool) -> None:
        """So many messages were not done."""
        kind = kind_of(error)
        if kind not in self.errors and len(self.errors) >= ERROR_KINDS_MAX:
            kind = _OTHERS
        self.errors[kind] = self.errors.get(kind, 0) + messages
        self.failed += messages
        if may_be_done:
            self.uncertain += messages

    @property
    def passed_s(self) -> float:
        """From the first request to the last good answer."""
        if self.first_s is None or self.last_s is None:
            return 0.0
        return self.last_s - self.first_s

    @property
    def messages_per_s(self) -> float | None:
        """None where there was nothing."""
        return self.messages / self.passed_s if self.passed_s > 0 else None

    @property
    def requests_per_s(self) -> float | None:
        """None where there was nothing."""
        return self.requests / self.passed_s if self.passed_s > 0 else None


def kind_of(error: ClientError) -> str:
    """What an error is counted as: a problem's type, or its class."""
    if isinstance(error, Problem):
        return error.slug
    return _INNER_CAPITAL.sub("-", type(error).__name__).lower()
