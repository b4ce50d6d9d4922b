"""Bounds of what the doctor tries, and the figures that its verdicts go by."""

from typing import Final

# The command's exit codes, as mqctl's are.
OK: Final = 0
COULD_NOT_PROBE: Final = 1
SOMETHING_WRONG: Final = 5

# Flushes that are timed, and the bytes of each; slower ones are told of.
FLUSHES_TIMED: Final = 20
FLUSHED_BYTES: Final = 1024
FLUSH_SLOW_S: Final = 0.05
# No disk is faster: such a flush has written nothing down.
FLUSH_INCREDIBLE_S: Final = 0.000_005

# Files over which two sides race, the share that each must win for it to have been a race, and the
# times from one start to the next of the tries: where one side had all, it is tried again.
RACED_FILES: Final = 100
RACED_SHARE_MIN: Final = 0.02
RACE_APART_S: Final = (0.0, 0.002, 0.005)
# When both begin, from when they are told.
START_IN_S: Final = 0.05
# Additions of each of two sides to one number.
ADDITIONS: Final = 50
# How long a file is replaced again and again while another process looks for it.
REPLACED_S: Final = 0.05

# How long a partner has for what it is asked, and to have a lock.
PATIENCE_S: Final = 30.0
LOCK_WAIT_S: Final = 10.0
LOCK_LOOK_EVERY_S: Final = 0.000_2

# Two mounts: how often each is tried, how long what one does is waited for on the other, how often
# it is looked for, and what is still at once.
SEEN_ROUNDS: Final = 3
SEEN_WITHIN_S: Final = 10.0
SEEN_LOOK_EVERY_S: Final = 0.001
SEEN_SOON_S: Final = 1.5

# Clocks: what no mq follows may be so far off.
OFFSET_MS_MAX: Final = 1000
TIMES_SAMPLED: Final = 8

DESCRIPTORS_MIN: Final = 1024
DESCRIPTORS_GOOD: Final = 4096

# A leftover without anybody who could be asked goes when it is so old.
LEFTOVER_AGE_S: Final = 3600.0
LEFTOVERS_MAX: Final = 1000
TOKEN_BYTES: Final = 8
REMOVE_TRIES: Final = 5
INOTIFY_WAIT_S: Final = 2.0
