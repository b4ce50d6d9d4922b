"""Bounds of what time does to messages and queues: redelivery's limit, shovels, sweeps, expiry,
and who does that.

Beside `mq.model.limits`, and in its manner.
"""

from typing import Final

from mq.model.limits import KIB, MIB, QUEUE_NAME_CHARS_MAX, RECEIVES_MAX, SIDELINE_SUFFIX

_DAY_S: Final = 24 * 3600

# Settings of a queue. One receive less than what can be counted: the count stops there.
MAX_RECEIVES_MAX: Final = RECEIVES_MAX - 1
MESSAGE_TTL_S_MAX: Final = 366 * _DAY_S
EXPIRY_GRACE_S_DEFAULT: Final = float(_DAY_S)
EXPIRY_GRACE_S_MAX: Final = 366 * _DAY_S
SHOVEL_INTERVAL_S_MAX: Final = 7 * _DAY_S
SHOVEL_CONCURRENCY_DEFAULT: Final = 4
SHOVEL_CONCURRENCY_MAX: Final = 32
SHOVEL_MAX_RECEIVES_DEFAULT: Final = 20
# How many names a shovel's pass holds at a time; and how far a message's id may be ahead of the
# time at which the pass began: as far as a purge's mark takes a process's ids, and more.
SHOVEL_LISTED_MAX: Final = 2000
SHOVEL_IDS_AHEAD_S: Final = 2 * 3600
SWEEP_AFTER_S_DEFAULT: Final = 1200.0
SWEEP_AFTER_S_MIN: Final = 1.0
SWEEP_AFTER_S_MAX: Final = 366 * _DAY_S

# Expiry: how often what has expired is taken away, how many messages at once; how often what is
# known of a queue is looked through for it, by the time that messages have; and how often queues
# are looked at whose own time may be over.
MESSAGE_EXPIRY_EVERY_S: Final = 60.0
EXPIRED_PER_TURN_MAX: Final = 1000
EXPIRY_QUEUES_PER_TURN_MAX: Final = 100
EXPIRED_FAILED_KNOWN_MAX: Final = 10_000
EXPIRED_DROPPED_EVERY_MS: Final = 100
QUEUE_EXPIRY_EVERY_S: Final = 60.0

# The sweep of what is overdue: when its first pass is, and how often one is; how many names of
# delay/ one turn looks at, and how many of them it moves; how often it looks for a pass that
# another began and did not end, and for how long it is worth while to go on with that one.
OVERDUE_FIRST_S: Final = 600.0
OVERDUE_EVERY_S: Final = 900.0
OVERDUE_LOOKED_AT_MAX: Final = 2_000
OVERDUE_MOVED_MAX: Final = 1_000
OVERDUE_TAKEN_OVER_EVERY_S: Final = 60.0
OVERDUE_TAKEN_OVER_S: Final = 2 * OVERDUE_EVERY_S
POINTER_BYTES_MAX: Final = 4 * KIB
# Misplaced messages: how often buckets are looked for that were not looked through; how many names
# one turn looks at, and how many messages it moves.
MISPLACED_EVERY_S: Final = 300.0
MISPLACED_LOOKED_AT_MAX: Final = 10_000
MISPLACED_MOVED_MAX: Final = 1_000
# Messages of deleted queues that one turn takes away.
RETIRED_PER_TURN_MAX: Final = 5_000
# Redelivery that did nothing for so long was away: what was due meanwhile is not overdue for that.
REDELIVERY_GAP_S: Final = 60.0
# What a member told stays so long after its end; what it was writing, so long.
MEMBER_TOLD_KEPT_S: Final = float(_DAY_S)
UNFINISHED_KEPT_S: Final = 3600.0

# What a process knows of the queues that there are.
REFRESH_FIRST_S: Final = 60.0
REFRESH_EVERY_S: Final = 300.0
# How often it is looked whether anybody has asked all for it.
REFRESH_ASKED_EVERY_S: Final = 1.0

# A page of queues.
QUEUES_LISTED_DEFAULT: Final = 100
QUEUES_LISTED_MAX: Final = 1000

# What a member tells of itself: again at the soonest, and at the latest; and after how long of
# nothing it is shown as gone. Of its queues so many are named.
TOLD_SOONEST_S: Final = 2.0
TOLD_EVERY_S: Final = 10.0
TOLD_GONE_S: Final = 3 * TOLD_EVERY_S
TOLD_QUEUES_MAX: Final = 10_000
TOLD_BYTES_MAX: Final = MIB
MEMBERS_SHOWN_MAX: Final = 1000
MEMBER_QUEUES_SHOWN_MAX: Final = 100

# Leadership: how often the leader deals out the queues; a member looks whether that has changed,
# and says that it is there. A member that could not say so stops believing that queues are its own
# before it is gone for the others, and what was its own goes on within two deals.
ASSIGN_EVERY_S: Final = 30.0
MEMBER_LOOKS_EVERY_S: Final = ASSIGN_EVERY_S / 30
MEMBER_RENEWED_EVERY_S: Final = ASSIGN_EVERY_S / 3
MEMBER_BELIEVES_S: Final = ASSIGN_EVERY_S
MEMBER_GONE_S: Final = 1.5 * ASSIGN_EVERY_S
MEMBER_FORGOTTEN_S: Final = 3600.0
MEMBER_NAME_CHARS_MAX: Final = 100
LEADER_BYTES_MAX: Final = 64 * MIB
# A ZooKeeper session's, unless the address says otherwise: how long after its last word a member is
# gone. One node's data is under 1 MiB (jute.maxbuffer), and a large assignment is compressed.
SESSION_S_DEFAULT: Final = 10.0
SESSION_S_MAX: Final = 600.0
NODE_BYTES_MAX: Final = 1_000_000
NODE_PLAIN_BYTES_MAX: Final = 16 * KIB

_RELATIONS: Final = {
    "a member that tells nothing new is not taken for gone": TOLD_GONE_S >= 3 * TOLD_EVERY_S,
    "what a member tells of its queues leaves room for all else": (
        TOLD_QUEUES_MAX * (QUEUE_NAME_CHARS_MAX + len(SIDELINE_SUFFIX) + 4)
        <= TOLD_BYTES_MAX * 3 // 4
    ),
    "a message that was received too often can be told": MAX_RECEIVES_MAX < RECEIVES_MAX,
    "a member is heard of more than once before it is gone": (
        2 * MEMBER_RENEWED_EVERY_S < MEMBER_BELIEVES_S < MEMBER_GONE_S
    ),
    "what a gone member had goes on within two deals": (
        MEMBER_GONE_S + 2 * MEMBER_LOOKS_EVERY_S + MEMBER_RENEWED_EVERY_S <= 2 * ASSIGN_EVERY_S
    ),
    "a shovel's own limit can be told": SHOVEL_MAX_RECEIVES_DEFAULT <= RECEIVES_MAX,
}
for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(_relation)
