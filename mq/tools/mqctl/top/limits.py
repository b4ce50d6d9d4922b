"""The bounds of `mqctl top`, and how they relate. Units stand last in the names."""

from typing import Final

INTERVAL_S_DEFAULT: Final = 2.0
INTERVAL_S_MIN: Final = 0.2
INTERVAL_S_MAX: Final = 3600.0

# Descriptions that are asked for in a tick, and how many of them at a time.
ASKED_A_TICK_DEFAULT: Final = 100
ASKED_A_TICK_MAX: Final = 10_000
ASKED_AT_A_TIME: Final = 8
# Names that are listed in a tick, and that are known at all: beyond these it is said that there are
# more.
NAMES_A_TICK: Final = 2000
NAMES_MAX: Final = 100_000
# Of what is asked in a tick, so much is left for the queues that are not on the screen.
REST_SHARE: Final = 0.25

# Two answers that are closer than this say little of a rate: the earlier is kept to count from.
RATE_OVER_S_MIN: Final = 0.15
# Of several processes: a rate of one that did not answer for so long counts no more.
RATE_KEPT_S: Final = 30.0
PROCESSES_MAX: Final = 1024

# An Esc alone is one once nothing has followed for so long; a key's sequence has at most so much.
ESCAPE_S: Final = 0.05
SEQUENCE_BYTES_MAX: Final = 16
FILTER_CHARS_MAX: Final = 64
PATTERNS_MAX: Final = 100
REASON_CHARS_MAX: Final = 300

_RELATIONS: Final = {
    "the rest is asked for too": 0 < REST_SHARE < 1,
    "a tick's rates can be had": RATE_OVER_S_MIN < INTERVAL_S_MIN,
    "a round of all names ends": NAMES_A_TICK <= NAMES_MAX,
}

for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(f"limits: {_relation}")
