"""The bounds of `mqctl bench`, and how they relate. Units stand last in the names."""

from typing import Final

from mq.model.limits import BATCH_MESSAGES_MAX, KIB, MIB

MESSAGES_DEFAULT: Final = 10_000
MESSAGES_MAX: Final = 100_000_000
SECONDS_MAX: Final = 8 * 3600.0
CONNECTIONS_DEFAULT: Final = 16
CONNECTIONS_MAX: Final = 1000
SIZE_BYTES_DEFAULT: Final = 300
SIZE_BYTES_MAX: Final = 8 * MIB
RATE_PER_S_MAX: Final = 1_000_000.0
WARM_UP_S_DEFAULT: Final = 1.0
WARM_UP_S_MAX: Final = 600.0

# Of what one request publishes or fetches: mq takes 8 MiB of lines.
BATCH_MAX: Final = BATCH_MESSAGES_MAX
BATCH_BYTES_MAX: Final = 8 * MIB - 64 * KIB

# A body begins with so much, which says whose it is.
MARK_BYTES: Final = 22
# How long a fetched message is the bench's: it deletes it at once.
VISIBILITY_S: Final = 300
# How long a fetch waits for what is to come, and how many in a row may find nothing.
FETCH_WAIT_S: Final = 1.0
EMPTY_IN_A_ROW_MAX: Final = 3
# So many requests that fail in a row, and two for each connection beside: nothing will succeed.
FAILED_IN_A_ROW_MIN: Final = 50
# Kinds of errors that are counted apart.
ERROR_KINDS_MAX: Final = 50

# How long what is on its way is waited for when a signal stops the bench.
IN_HAND_S: Final = 5.0
# How long the cleaning may take, and how much of the queue it looks through for what is others'.
CLEAN_S: Final = 30.0
PEEKED_A_PAGE: Final = 1000
PAGES_MAX: Final = 1000
# In a queue of its own nobody is expected.
PAGES_OF_OWN_MAX: Final = 20
LOOKS_MAX: Final = 10
# A queue of a bench that was killed goes by itself so long after the bench began.
EXPIRES_AFTER_S: Final = 24 * 3600.0

_RELATIONS: Final = {
    "a mark fits in a body that is not said": MARK_BYTES <= SIZE_BYTES_DEFAULT,
    "a whole bench fits in the life of its queue": 2 * SECONDS_MAX + 2 * WARM_UP_S_MAX
    < EXPIRES_AFTER_S,
    "a message alone fits in a batch": BATCH_BYTES_MAX <= SIZE_BYTES_MAX,
}

for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(f"limits: {_relation}")
