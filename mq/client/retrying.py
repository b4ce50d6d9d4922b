"""When a call is said again, and after how long. Pure: what was tried, and its outcome, decide."""

from typing import Final

from mq.client.bodies import StreamedBody
from mq.client.calls.call import Again
from mq.client.errors import ClientError, NotMq, Problem, Unanswered, UpgradeRefused
from mq.client.options import Retry
from mq.client.transport import Request

# After these mq has surely done nothing of what was asked for: each is decided before the deed, or
# is a lost race for it.
NOTHING_DONE: Final = frozenset(
    {
        "message-busy",
        "no-memory",
        "too-many-connections",
        "too-many-selections",
        "too-many-shovels",
        "too-many-waiters",
    }
)
# A proxy that could not reach mq, or did not get its answer: the request may have got through.
_PROXYS: Final = frozenset({502, 503, 504})
# A proxy that let nothing through.
_TOO_MANY: Final = 429


def passes(error: ClientError) -> bool:
    """Whether the same request may succeed later."""
    if isinstance(error, Problem):
        return error.retryable
    if isinstance(error, NotMq):
        return error.status in _PROXYS or error.status == _TOO_MANY
    return isinstance(error, Unanswered)


def may_be_done(error: ClientError) -> bool:
    """Whether mq may have done what was asked for all the same."""
    if isinstance(error, Unanswered):
        return error.was_sent
    if isinstance(error, Problem):
        return error.retryable and error.slug not in NOTHING_DONE
    return isinstance(error, NotMq) and error.status in _PROXYS


def was_lost(error: ClientError) -> bool:
    """Whether there was an answer, perhaps, that did not come."""
    return not isinstance(error, Problem) and may_be_done(error)


def is_safe(again: Again, request: Request, error: ClientError) -> bool:
    """Whether the request may be sent again after this."""
    if not passes(error) or isinstance(error, UpgradeRefused):
        return False
    if isinstance(request.body, StreamedBody) and not request.body.can_begin:
        return False
    match again:
        case Again.SAFE:
            return True
        case Again.ANSWERED:
            return not was_lost(error)
        case Again.UNDONE:
            return not may_be_done(error)
        case Again.NEVER:
            return False


def pause_before(attempt: int, error: ClientError | None, retry: Retry, chance: float) -> float:
    """Seconds to wait before an attempt, the second being 2: full jitter, `chance` from 0 to 1;
    Retry-After is the least.
    """
    # Bounded before it is raised: no float is so large.
    doublings = min(attempt - 2, 63)
    pause_s = chance * min(retry.longest_s, retry.first_s * 2.0**doublings)
    after_s = error.retry_after_s if isinstance(error, Problem) else None
    return max(pause_s, after_s or 0.0)


def next_pause_s(
    attempt: int, passed_s: float, error: ClientError, retry: Retry, chance: float
) -> float | None:
    """Seconds to wait before the next attempt after `attempt` of them, `passed_s` after the first
    began; None where there is to be no other.
    """
    if attempt >= retry.attempts:
        return None
    pause_s = pause_before(attempt + 1, error, retry, chance)
    return None if passed_s + pause_s >= retry.deadline_s else pause_s
