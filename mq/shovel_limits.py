"""Bounds of shovels' runs.

Floor 0. Beside `mq.limits`, and in its manner.
"""

from typing import Final

from mq.limits import GROUP_OPERATIONS_MAX, KIB

# What one worker has in hand at a time, and all of a run: each is a file that is open.
SHOVEL_BATCH_MAX: Final = 128
SHOVEL_IN_HAND_MAX: Final = 256
# How often a run looks whether it is to stop, and says how far it is; and after how long of saying
# nothing another may take its turn.
SHOVEL_LOOK_S: Final = 0.25
SHOVEL_TOLD_EVERY_S: Final = 0.5
SHOVEL_SILENT_S: Final = 10.0
# After how long a run goes on that met an error, and how often.
SHOVEL_AGAIN_S: Final = 10.0
SHOVEL_AGAIN_MAX: Final = 1
# What may be asked for: messages a second, messages in all.
SHOVEL_RATE_MAX: Final = 1_000_000
SHOVEL_LIMIT_MAX: Final = 1_000_000_000
SHOVEL_OLDER_THAN_S_MAX: Final = 366 * 24 * 3600
# What a rate lets through at once, in seconds of it.
SHOVEL_RATE_BURST_S: Final = 0.1
# How long a request waits for a run to have stopped, and how often it looks; how often it is tried
# to begin one where somebody only looks whether one runs, and how long between.
SHOVEL_STOP_WAIT_S: Final = 1.0
SHOVEL_STOP_LOOK_S: Final = 0.05
SHOVEL_TRIES_MAX: Final = 5
SHOVEL_TRY_WAIT_S: Final = 0.01
# Runs at a time: those of requests in an mq process, and scheduled ones in an mq-mover.
SHOVEL_RUNS_MAX: Final = 16
SHOVEL_SCHEDULED_RUNS_MAX: Final = 4
# A schedule is at least so long, and looked at so often; how long an mq-mover that ends waits for
# its runs.
SHOVEL_SCHEDULED_S_MIN: Final = 1.0
SHOVEL_SCHEDULES_LOOK_S: Final = 1.0
SHOVEL_END_S: Final = 5.0
SHOVEL_FILE_BYTES_MAX: Final = 64 * KIB

_RELATIONS: Final = {
    "a batch is one commit group": SHOVEL_BATCH_MAX <= GROUP_OPERATIONS_MAX,
    "a run is heard of more than once before its turn is taken": (
        2 * (SHOVEL_LOOK_S + SHOVEL_TOLD_EVERY_S) < SHOVEL_SILENT_S
    ),
}
for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(_relation)
