"""The bounds of a WebSocket that consumes, and how they relate to others."""

from typing import Final

from mq.model.limits import BATCH_MESSAGES_MAX, FILE_NAME_BYTES_MAX, KIB, MIB

# A WebSocket that consumes: its queues; what it holds and may still get, together; a command's
# bytes, its ref, and how many go on at once before no more are read.
SUBSCRIPTIONS_MAX: Final = 1000
CREDIT_MAX: Final = 10_000
COMMAND_BYTES_MAX: Final = 256 * KIB
COMMANDS_IN_HAND_MAX: Final = 16
REF_CHARS_MAX: Final = 128
REF_MAX: Final = 2**53 - 1
# What is claimed for it before it was sent: messages and, as far as their sizes can be foreseen,
# bytes of bodies; the least of one queue before it is another's turn. When it has not read for so
# long it is no consumer meanwhile, and then what was claimed for it and not sent is given back.
CLAIMED_AHEAD_MAX: Final = 128
CLAIMED_AHEAD_BYTES: Final = 4 * MIB
TURN_MESSAGES_MIN: Final = 16
FULL_S_MAX: Final = 0.05
UNSENT_S_MAX: Final = 1.0
# A client that says nothing after so many pings is taken for gone; how long it may take to answer a
# close.
SILENT_PINGS_MAX: Final = 2
CLOSE_ANSWER_S: Final = 2.0
# Pings, pongs and empty fragments that a client may send at once, and then each second.
CONTROL_FRAMES_MAX: Final = 100
CONTROL_FRAMES_PER_S: Final = 10
CLOSE_REASON_BYTES_MAX: Final = 123

_RELATIONS: Final = {
    "a command names as many ids as a batch has": (
        BATCH_MESSAGES_MAX * (FILE_NAME_BYTES_MAX + len('"", ')) + KIB <= COMMAND_BYTES_MAX
    ),
    "all that is claimed ahead for a connection is within what it may get": (
        TURN_MESSAGES_MIN <= CLAIMED_AHEAD_MAX <= CREDIT_MAX
    ),
    "who does not read is no consumer before what it has is given back": FULL_S_MAX < UNSENT_S_MAX,
}

for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(f"limits: {_relation}")
