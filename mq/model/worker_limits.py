"""Bounds of workers: how much one has in hand, and how long it waits for what.

Beside `mq.model.limits`, and in its manner.
"""

from typing import Final

from mq.model.limits import BATCH_MESSAGES_MAX

# Messages that one worker handles at a time. Each may be in a thread of its own.
CONSUMERS_MAX: Final = 100
CONSUMERS_DEFAULT: Final = 4
# What waits in a worker beside that, for each of its queues.
WORKER_PREFETCH_MAX: Final = 500
# Queues of a worker: each has a request waiting. Handlers of one, and types that each has.
WORKER_QUEUES_MAX: Final = 100
HANDLERS_PER_QUEUE_MAX: Final = 1000

# How long a poll waits at the server; how long a worker that drains waits for one whose answer may
# be on its way; and how soon, at most how late, one that failed is said again.
WORKER_POLL_S: Final = 20.0
YOUNG_POLL_S: Final = 0.2
POLL_AGAIN_S: Final = 0.1
POLL_AGAIN_S_MAX: Final = 5.0

# Leases: which share of one is left when it is extended; how long one is made at least; how long
# the request may take, and how soon one that failed is said again.
LEASE_LEFT_SHARE: Final = 1 / 3
LEASE_S_MIN: Final = 1.0
EXTENDING_S_MIN: Final = 0.5
EXTENDING_S_MAX: Final = 10.0
EXTEND_AGAIN_S_MIN: Final = 0.2

# How soon a settling that failed is said again.
SETTLE_AGAIN_S: Final = 0.5
SETTLE_AGAIN_S_MAX: Final = 5.0
# A drain: what it has by default, how many releases go on at once, and how long what is cut short
# then may take for its end.
WORKER_DRAIN_S_DEFAULT: Final = 30.0
RELEASES_AT_ONCE: Final = 32
CUT_END_S: Final = 1.0
RELEASED_AT_END_S: Final = 5.0
# How long a handler may clean up that was told that its time is over.
CANCELLED_END_S: Final = 1.0

# How often a worker that follows `consumers` looks at it.
FOLLOW_EVERY_S: Final = 3.0
# Waits between deliveries of a message over which its handler failed.
BACKOFF_FIRST_S: Final = 1.0
BACKOFF_LONGEST_S: Final = 300.0
BACKOFF_DOUBLINGS_MAX: Final = 64
# Whatever is said in seconds.
WORKER_SECONDS_MAX: Final = 7 * 24 * 3600.0
# Connections beyond one for each queue and each consumer: extensions, looks at settings, releases.
WORKER_CONNECTIONS_SPARE: Final = 32

# Processes of `mqctl worker`, and how one that died is started again.
WORKER_PROCESSES_MAX: Final = 64

_RELATIONS: Final = {
    "what a worker asks for at a time is a batch": (
        CONSUMERS_MAX + WORKER_PREFETCH_MAX <= BATCH_MESSAGES_MAX
    ),
    "a lease is extended before it has lapsed": 0 < LEASE_LEFT_SHARE < 1,
}
for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(_relation)
