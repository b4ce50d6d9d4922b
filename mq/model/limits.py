"""Limits that several packages share. A limit of one package is where it is used.

Names end with their units: bytes, seconds, counts.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Names, ids and a message's attributes. `tests/model/test_limits.py` checks that the longest queue
# name and the longest id fit into one file name.
SIDELINE_SUFFIX: Final = "_SIDELINE"
FILE_NAME_BYTES_MAX: Final = 255
UUID_CHARS: Final = 36
PRIORITY_MAX: Final = 9
KEY_WRITTEN_BYTES_MAX: Final = 64
GROUP_CHARS_MAX: Final = 128
GROUP_DIGITS: Final = 16
TAGS_MAX: Final = 9
HEADER_BLOCK_BYTES_MAX: Final = 8 * KIB
HEADERS_MAX: Final = 64
# The end of the year 9999, the last one of RFC 3339.
PUBLISHED_MS_MAX: Final = 253_402_300_799_999
# A file's mtime holds the due time in whole milliseconds, the receives in microseconds and the
# reason in nanoseconds.
RECEIVES_MAX: Final = 999
REASON_MAX: Final = 9

# A queue's settings.
VISIBILITY_S_DEFAULT: Final = 30.0
VISIBILITY_S_MIN: Final = 0.001
VISIBILITY_S_MAX: Final = 7 * 24 * 3600
IDEMPOTENCY_S_DEFAULT: Final = 300.0
MESSAGE_TTL_S_MAX: Final = 366 * 24 * 3600
HISTORY_BYTES_MIN: Final = MIB
CONSUMERS_MAX: Final = 100

# Bodies. A body of at most BODY_HELD_BYTES_MAX is held in memory; a larger one streams in chunks.
BODY_BYTES_MAX_DEFAULT: Final = 64 * MIB
BODY_HELD_BYTES_MAX: Final = MIB
CHUNK_BYTES: Final = 256 * KIB
# The time that a client may take for a whole body, beside the time allowed between two bytes: a
# second for every this many bytes.
BODY_BYTES_PER_S_MIN: Final = KIB
MEMORY_BYTES_DEFAULT: Final = 64 * MIB

# Batches: messages of a fetch, of acks and of a peek; lines of one publish, and their bytes.
BATCH_MESSAGES_MAX: Final = 1000
SPLIT_LINES_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 8 * MIB
# A row of a publish, as JSON. A parsed value takes twenty times its bytes in memory.
ROW_BYTES_MAX: Final = MIB
PEEK_BODY_BYTES: Final = 4 * KIB
# Packs: files of several messages. A claim reads a whole one.
PACK_MESSAGES_MIN: Final = 2
PACK_MESSAGES_MAX: Final = 1000
PACK_BYTES_MAX: Final = MIB
# Operations that share a flush.
GROUP_OPERATIONS_MAX: Final = 128

# Folders. Beyond FOLDER_FILES_MAX files, new ones go to buckets by the publish time of their id.
FOLDER_FILES_MAX: Final = 10_000
BUCKET_DIGITS_MIN: Final = 7
BUCKET_DIGITS_MAX: Final = 9
SHARDS_MAX: Final = 16
# The interval at which a process scans for changes by other processes.
LOOK_INTERVAL_S: Final = 0.5

# Selections and schedules.
SELECT_CHARS_MAX: Final = 1024
EVERY_S_MIN: Final = 1
EVERY_S_MAX: Final = 10 * 366 * 24 * 3600
SCHEDULE_DELAY_S_MAX: Final = 10 * 366 * 24 * 3600
SCHEDULE_COUNT_MAX: Final = 1_000_000_000
CRON_CHARS_MAX: Final = 256

# Upkeep.
SWEEP_EVERY_S: Final = 60.0
# A file that a process began and never published is removed after this time.
FORGOTTEN_AFTER_S: Final = 3600
REFRESH_EVERY_S: Final = 300.0
# After this silence of a turn's holder (a shovel's run, an active consumer) another process may
# take the turn.
TURN_SILENT_S: Final = 10.0

# Restarts of a child of `--processes`: at once, then after waits from MIN to MAX, until a child has
# lived for LONG_LIFE.
PROCESSES_MAX: Final = 64
CHILD_RESTART_S_MIN: Final = 0.5
CHILD_RESTART_S_MAX: Final = 30.0
CHILD_LONG_LIFE_S: Final = 30.0
# The time that a child may take to end, beside its drain.
CHILD_END_S: Final = 10.0

# Connections and callers.
WAITERS_MAX_DEFAULT: Final = 10_000
# A WebSocket's client that sends nothing for this long gets a ping.
PING_S_DEFAULT: Final = 20.0
# The tolerated clock difference to the issuer of a JSON Web Token.
JWT_LEEWAY_S_DEFAULT: Final = 30.0
