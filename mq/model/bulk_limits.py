"""Bounds of what is done with many messages at a time: leases, bulk publishes, Spark's tasks.

Beside `mq.model.limits`, and in its manner.
"""

from typing import Final

from mq.model.limits import BUCKET_DIGITS_DEFAULT, DEEP_DIGITS, KIB, MIB

# Leases, for consumers of many messages at a time. Open ones of a root are few, since whoever looks
# for a message by its id looks into each.
CONSUMER_NAME_CHARS_MAX: Final = 40
LEASE_SEQ_DIGITS_MAX: Final = 12
LEASE_S_DEFAULT: Final = 600
LEASE_S_MAX: Final = 7 * 24 * 3600
LEASES_OPEN_MAX: Final = 64
LEASED_MESSAGES_DEFAULT: Final = 100_000
LEASED_MESSAGES_MAX: Final = 1_000_000
# A manifest names the queues that were asked for.
MANIFEST_BYTES_MAX: Final = 1 << 20
# Ready messages that a claim looks for at a time, and how many it takes before it looks again
# whether the queue was purged.
LEASE_LOOK_MESSAGES_MAX: Final = 50_000
LEASE_RENAMES_PER_LOOK: Final = 1_000
# Messages that are given back between two flushes.
RETURNED_PER_FLUSH_MAX: Final = 1_000
# Messages of a lapsed lease that mq-mover gives back before it looks after others.
RETURNED_PER_PASS_MAX: Final = 20_000
# How long the manifest of a lease that was released says so.
LAPSED_KEPT_S: Final = 7 * 24 * 3600
# A lease is renewed so many times before it lapses.
RENEWALS_PER_LEASE: Final = 3
LEASE_RENEWAL_RETRY_S: Final = 1.0
# How long a query waits for the one before it to end that uses its consumer's name.
OWNER_WAIT_S: Final = 5.0
OWNER_RETRY_S: Final = 0.1
# How long a process that ends waits to hear of queries that have ended.
LAST_EVENTS_S: Final = 5.0

# Bulk publishes: how long what was staged stays when nothing is written any more, and how long a
# publish id is remembered.
STAGING_FORGOTTEN_S: Final = 24 * 3600
LEDGER_KEPT_S: Final = 7 * 24 * 3600
# How often a job that is given up is met anew, by tasks that begin in that moment: each does once.
GIVING_UP_TRIES_MAX: Final = 1000
JOURNAL_BYTES_MAX: Final = 64 * MIB
# So many of a publish's files are renamed between two flushes of the folders that they go to.
ROLLED_PER_FLUSH_MAX: Final = 20_000
PARTITION_BITS: Final = 20
ROWS_PER_MS: Final = 32
# A task has what it wrote go to the disk after so many messages, while it writes more.
STAGED_PER_WRITEBACK: Final = 10_000
# What a task has staged goes to its place as one folder where so many rows come at once; such
# a folder has so many messages, of a window of time (2 to so many bits, in milliseconds) that is
# this task's alone; their ids are so much ahead of the time at most. So many ids fit in so long.
FOLD_ROWS_MIN: Final = 1000
FOLD_ROWS_MAX: Final = 20_000
WINDOW_BITS: Final = 8
WINDOW_AHEAD_MS_MAX: Final = 2000
WINDOW_SPARE_MS: Final = 16

# Spark. Messages that one task reads, and that one lease of a stream takes; threads of a task.
PARTITIONS_MAX: Final = 100_000
MESSAGES_PER_PARTITION_DEFAULT: Final = 25_000
MESSAGES_PER_PARTITION_MAX: Final = 1_000_000
# The most tasks that read by default, and the messages that make another task worth while.
PARTITIONS_DEFAULT: Final = 8
MESSAGES_PER_PARTITION_WORTH: Final = 1_000
MESSAGES_PER_TRIGGER_DEFAULT: Final = 100_000
MESSAGES_PER_TRIGGER_MAX: Final = 10_000_000
READ_THREADS_DEFAULT: Final = 1
READ_THREADS_MAX: Final = 64
# A longer listing goes to a file, which stays for a day.
HELD_NAMES_MAX: Final = 1_000_000
LISTING_KEPT_S: Final = 24 * 3600
# What Spark gets at once: rows, and, but for the last of them, bytes of bodies.
READ_BATCH_ROWS: Final = 5000
READ_BATCH_BYTES: Final = 16 * MIB
# A file that is not longer is read before it is known whether that is wanted.
READ_AT_ONCE_BYTES_MAX: Final = MIB
# The largest body that is a row's value: Spark's are arrays of Java's, below 2 GiB with all copies.
VALUE_BYTES_MAX: Final = 1024 * MIB
# The archive of removed messages, as Spark writes it. Names of a task, and of one of few names; the
# largest body that is a row's value (a larger one is a file of its own); what a task holds before
# it writes it, and how many of its files are open; how large files are made, by tasks and by
# compaction; and when compaction begins.
ARCHIVED_PER_TASK_MAX: Final = 50_000
ARCHIVED_PER_TASK_MIN: Final = 5_000
ARCHIVE_TASKS_MIN: Final = 8
ARCHIVED_VALUE_BYTES_MAX: Final = 256 * MIB
ARCHIVED_HELD_BYTES_MAX: Final = 64 * MIB
ARCHIVED_HELD_ROWS_MAX: Final = 100_000
ARCHIVED_OPEN_FILES_MAX: Final = 64
ARCHIVED_FILE_BYTES_MAX: Final = 256 * MIB
SMALL_FILE_BYTES_MAX: Final = 64 * MIB
SMALL_FILES_MAX: Final = 8
# What a commit of the archive says: some 150 bytes a file.
ARCHIVE_COMMIT_BYTES_MAX: Final = 64 * MIB
# How often whoever waits for Spark looks how far it is.
ARCHIVE_LOOK_S: Final = 0.2
# How long after a pass the next one may come.
ARCHIVE_EVERY_S_MAX: Final = 7 * 24 * 3600
# The oldest Java that Spark starts with, and how long one may take to tell its version.
JAVA_MAJOR_MIN: Final = 17
JAVA_ANSWER_S_MAX: Final = 60.0

# Archives. A batch's names are a file of the root; so many ledgers that were stored are merged into
# one, since each is read for each batch.
ARCHIVE_SEQ_DIGITS_MAX: Final = 12
ARCHIVE_BATCH_MESSAGES_DEFAULT: Final = 1_000_000
ARCHIVE_BATCH_MESSAGES_MAX: Final = 10_000_000
ARCHIVE_LEDGERS_MAX: Final = 32
ARCHIVE_MARK_BYTES_MAX: Final = 64 * KIB
# Names of one folder that are held to be sorted, and those that are handed on together.
SORTED_NAMES_MAX: Final = 200_000
REMOVED_NAMES_BLOCK: Final = 1_000
LEDGER_READ_BYTES: Final = 256 * KIB

_RELATIONS: Final = {
    "what a fold holds is of one window": (
        FOLD_ROWS_MAX // 2048 + 2 <= WINDOW_SPARE_MS <= 1 << WINDOW_BITS
    ),
    "a window is what one folder below a bucket is for": (
        WINDOW_BITS == 4 * (12 - BUCKET_DIGITS_DEFAULT - DEEP_DIGITS)
    ),
}

for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(f"limits: {_relation}")
