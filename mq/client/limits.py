"""The bounds of a client, and how they relate to others. Units stand last in the names."""

from typing import Final

from mq.model.limits import BATCH_MESSAGES_MAX, KIB

URL_DEFAULT: Final = "http://127.0.0.1:8080"

# How many connections of a client are open at a time, and for how long one stays that is not used:
# less than mq keeps it (75 s), so that none is taken up that mq is just closing.
CONNECTIONS_MAX_DEFAULT: Final = 100
CONNECTIONS_MAX: Final = 10_000
KEEPALIVE_S: Final = 30.0

# How many messages `publish_many` has on their way at a time.
PUBLISHING_MAX_DEFAULT: Final = 32
PUBLISHING_MAX: Final = 1000

# What a consumer holds that nobody has taken yet, by queue.
PREFETCH_DEFAULT: Final = 10
PREFETCH_MAX: Final = BATCH_MESSAGES_MAX
# Its queues, and what it may prefetch of all of them: half of what mq lets a WebSocket have, so
# that there is room for what was taken.
SUBSCRIPTIONS_MAX: Final = 1000
CREDIT_MAX: Final = 5000
# When credit is asked for again that was refused.
CREDIT_AGAIN_S: Final = 1.0
# Deliveries of a connection that are known; beyond, those past their due times are forgotten.
HELD_MAX: Final = 10_000
# The largest body that comes over a WebSocket: aiohttp counts in 32 bits.
SOCKET_BODY_BYTES_MAX: Final = 2**32 - 1
# How long a poll of a consumer waits at the server.
POLL_WAIT_S: Final = 20.0
# How long a consumer waits at most before it tries again, whatever Retry-After says.
CONSUME_AGAIN_S_MAX: Final = 60.0
# Commands of a consumer's WebSocket that are not answered: mq reads no more than 16.
COMMANDS_IN_HAND_MAX: Final = 8
# How long the end of a consumer, of a WebSocket, of a client may take.
CLOSE_S: Final = 5.0
# Retries that one call has at most, whatever is said.
ATTEMPTS_MAX: Final = 100
# A body is handed to a connection in pieces of so much, each of which is a sign of life.
PIECE_BYTES: Final = 256 * KIB
# Of a time-out or a pause that is said, so much counts.
SECONDS_MAX: Final = 7 * 24 * 3600.0

_RELATIONS: Final = {
    "a poll takes at most what one fetch has": PREFETCH_MAX <= BATCH_MESSAGES_MAX,
    "connections can be had": CONNECTIONS_MAX_DEFAULT <= CONNECTIONS_MAX,
}

for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(f"limits: {_relation}")
