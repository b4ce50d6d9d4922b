"""A bound for every list, pool, name and batch, and how the bounds relate.

Units stand last in the names: bytes, seconds, counts.
"""

from typing import Final

KIB: Final = 1024
MIB: Final = 1024 * KIB

# Names. A queue's own name leaves room for its sideline's suffix.
QUEUE_NAME_CHARS_MAX: Final = 55
SIDELINE_SUFFIX: Final = "_SIDELINE"
UUID_CHARS: Final = 36
# The end of the year 9999, up to where RFC 3339 can tell times.
PUBLISHED_MS_MAX: Final = 253_402_300_799_999
# Up to here every file system keeps an mtime: the beginning of the year 2038.
DUE_MS_KEPT: Final = 2_145_916_800_000
PRIORITY_MAX: Final = 9
KEY_WRITTEN_BYTES_MAX: Final = 64
VISIBILITY_S_MAX: Final = 7 * 24 * 3600
HEADER_BLOCK_BYTES_MAX: Final = 8 * KIB
HEADERS_MAX: Final = 64
EXTENSION_CHARS_MAX: Final = 8
FILE_NAME_BYTES_MAX: Final = 255

# Due times are whole milliseconds, receives the microseconds, a reason the nanoseconds of mtime.
RECEIVES_MAX: Final = 999
REASON_MAX: Final = 9
# Beyond the reasons, the nanoseconds say how many deliveries were returned unhandled.
RETURNED_MAX: Final = 40

# Bodies. What is at most BODY_HELD_BYTES_MAX is held in memory, more streams in chunks.
BODY_BYTES_MAX_DEFAULT: Final = 64 * MIB
BODY_HELD_BYTES_MAX: Final = MIB
CHUNK_BYTES: Final = 256 * KIB
SMALL_CHUNK_BYTES: Final = 32 * KIB

# Group commit. Of two threads one flushes and one lets newcomers act.
GROUP_OPERATIONS_MAX: Final = 128
OPERATIONS_STANDING_MAX: Final = 2 * GROUP_OPERATIONS_MAX
COMMIT_THREADS: Final = 2
# A flush waits for those who have just left when they are this many, and so many times more would
# be all who ask for it, and flushes take so long; for at most so much of what the last one took.
GATHER_MIN: Final = 8
GATHER_RATIO: Final = 2
GATHER_FROM_S: Final = 0.002
GATHER_SHARE: Final = 0.75
WORKERS_MAX: Final = 256
# Threads for what is no commit group: listings, large bodies.
IO_THREADS_MAX: Final = 32
# Files and folders of one flush beyond which one syncfs is cheaper than an fsync each.
FILES_BEFORE_SYNCFS_MAX: Final = 1
FOLDERS_BEFORE_SYNCFS_MAX: Final = 4
# Queues' folders whose entries are known to be flushed; forgetting them costs an fsync each.
FLUSHED_ENTRIES_MAX: Final = 100_000

# A queue's settings.
VISIBILITY_S_DEFAULT: Final = 30.0
VISIBILITY_S_MIN: Final = 0.001
IDEMPOTENCY_S_DEFAULT: Final = 300.0
IDEMPOTENCY_S_MAX: Final = 7 * 24 * 3600
BODY_BYTES_SETTABLE_MAX: Final = 1 << 40
# How old what a process knows of them may be where it is used.
SETTINGS_AGE_S: Final = 0.5
SETTINGS_KNOWN_MAX: Final = 10_000
SETTING_NAME_SHOWN_CHARS: Final = 64

# History: how long a queue's is kept, and how large it may become.
HISTORY_KEPT_S_DEFAULT: Final = 7.0 * 24 * 3600
HISTORY_KEPT_S_MIN: Final = 3600
HISTORY_KEPT_S_MAX: Final = 366 * 24 * 3600
HISTORY_BYTES_DEFAULT: Final = 1 << 30
HISTORY_BYTES_MIN: Final = MIB
HISTORY_BYTES_MAX: Final = 1 << 40
# A file is followed by the next when it is so large, or this share of what the queue may have.
HISTORY_FILE_BYTES_MAX: Final = 16 * MIB
HISTORY_FILES_PER_QUEUE_MIN: Final = 8
# Lines that wait for the writer, how many go into one write, and how often it writes.
HISTORY_LINES_HELD_MAX: Final = 50_000
HISTORY_LINES_PER_WRITE_MAX: Final = 1_000
HISTORY_WRITE_EVERY_S: Final = 0.1
# Open files, and how long one stays open that nothing is written to.
HISTORY_FILES_OPEN_MAX: Final = 64
HISTORY_FILE_IDLE_S: Final = 60.0
# Queues of which it is known whether they have a history; forgetting one costs a look.
HISTORY_QUEUES_KNOWN_MAX: Final = 10_000
# No line is so long.
HISTORY_LINE_BYTES_MAX: Final = 64 * KIB
# How long a process that ends, or a reader, waits for what is still to be written.
HISTORY_END_S: Final = 2.0
# The latest events of a message that one answer has.
HISTORY_EVENTS_MAX: Final = 1_000
# A message's lines are looked for from so long before its id's time on: clocks of machines differ.
HISTORY_CLOCKS_APART_S: Final = 3600

# Folders. What comes once so many lie flat goes to buckets by the time of its id's publish.
FOLDER_FILES_MAX: Final = 10_000
BUCKET_DIGITS_MIN: Final = 7
BUCKET_DIGITS_MAX: Final = 9
BUCKET_DIGITS_DEFAULT: Final = 8
DEEP_DIGITS: Final = 2
SHARDS_MAX: Final = 16
# Into so many own arrivals a folder's limit is parted; after each the folder is listed again.
FOLDER_LOOKS: Final = 4
# Folders whose fill is remembered; forgetting one costs a bounded listing.
FILLS_MAX: Final = 20_000
# How often a rename into a bucket is tried that others take away meanwhile.
BUCKET_TRIES_MAX: Final = 5

# So often a message's sideline is made, which others delete again and again.
SIDELINE_TRIES_MAX: Final = 3
# How long after its window an empty bucket stays at least: a margin for daemons' clocks.
BUCKET_KEPT_S: Final = 60
SETTINGS_BYTES_MAX: Final = 64 * KIB

# Keys. How often a link is looked at again that others change meanwhile, and how many turns a lock
# is waited for that is held for a few calls.
LINK_TRIES_MAX: Final = 16
LOCK_TURNS_MAX: Final = 1000
# Links that one sweep looks at, but for the rest of the folder that it is in.
SWEPT_LINKS_MAX: Final = 10_000

# Schedules on disk. How often one is looked at again that others change meanwhile; what its file
# says before its message; and how long a firing's link stays at least.
FIRING_DUE_DIGITS_MAX: Final = 15
SCHEDULES_PER_QUEUE_MAX: Final = 1000
SCHEDULE_TRIES_MAX: Final = 16
SCHEDULE_LINE_BYTES_MAX: Final = 8 * KIB
FIRING_KEPT_S: Final = 3600
# When one is looked at again that could not be fired: what is full may soon have room.
FIRING_AGAIN_S: Final = 1.0
FIRING_STUCK_AGAIN_S: Final = 10.0

# Selections: their text, and how many a queue's consumers may have at a time.
SELECT_CHARS_MAX: Final = 1024
SELECT_TERMS_MAX: Final = 8
SELECTIONS_PER_QUEUE_MAX: Final = 64
# How long what is known of one stays that nobody uses, and how many of its messages are known.
SELECTION_IDLE_S: Final = 60.0
SELECTED_IDS_MAX: Final = 1024
# Names that a look for one goes through before it lets others have the thread, and how many of them
# a header block that is read, and a folder that is looked at, count for.
SELECT_NAMES_PER_HOP: Final = 50_000
SELECT_NAMES_PER_BLOCK: Final = 50
SELECT_NAMES_PER_FOLDER: Final = 10
# Such looks that a process has go on at once: the event loop is to have its share of the time.
SELECT_HOPS_AT_ONCE: Final = 2
# Folders in which nothing is of a selection, and messages in others that are not, that a process
# remembers of all selections; some hundred bytes each. A folder that so many looks did not come to
# is forgotten.
BARREN_FOLDERS_MAX: Final = 50_000
BARREN_NAMES_MAX: Final = 50_000
LOOKS_FORGET: Final = 16

# Fetching.
BACKLOG_IDS_MAX: Final = 4096
CLAIMS_MAX: Final = GROUP_OPERATIONS_MAX
# Of what somebody had who is gone, so much goes back between two flushes.
RELEASED_PER_FLUSH_MAX: Final = 250
PEERS_MAX: Final = BACKLOG_IDS_MAX - 1
# How many other processes a fetch reckons with that was not told, whatever --processes says.
PEERS_DEFAULT: Final = 0
# Folders that one look lists before it is content with what it has found.
FOLDERS_PER_LOOK_MAX: Final = 64
# Of so many messages that a process with peers takes one is of what it left to others.
TAKES_PER_STRANGER: Final = 16
# Of so many looks one begins at another's shard, so that none waits for ever.
LOOKS_PER_SHARD: Final = 4
# How long a consumer that was notified may take to ask: then another is.
NOTIFIED_S: Final = 1.0
# How often a process looks for what others did, and the share of time that looking may take.
LOOK_INTERVAL_S: Final = 0.5
LOOK_SHARE: Final = 0.05
# However long a look took: a process that was stopped in the middle of one looks again by then.
LOOK_PAUSE_S_MAX: Final = 10.0
# How long a message is let be that another process holds in this moment.
BUSY_ASIDE_S: Final = 0.1
# A folder's mtime is believed only when it is this much older than the listing.
FOLDER_MTIME_TRUST_S: Final = 2.0
# Folders that the kernel tells of, for how long after somebody waited there, how much is read at
# once, ids told of before their publish ended, and such where nobody waits; looks all the same.
WATCHES_MAX: Final = 16_384
WATCH_KEPT_S: Final = 10.0
ARRIVALS_READ_BYTES: Final = 64 * KIB
TOLD_MAX: Final = 4096
OFFERED_UNASKED_MAX: Final = 16
HEARD_LOOK_INTERVAL_S: Final = 5.0

# Memory. What may be in hand at least, whatever the budget; of it, this share is for small bodies.
MEMORY_BYTES_DEFAULT: Final = 64 * MIB
MEMORY_IN_HAND_BYTES_MIN: Final = 16 * MIB
MEMORY_SMALL_BYTES_MAX: Final = 16 * KIB
MEMORY_SMALL_SHARE: Final = 0.25
# What a body costs beside its bytes; what is left to each queue; what direct lists may have.
BODY_OVERHEAD_BYTES: Final = 512
MEMORY_QUEUE_BYTES_MIN: Final = 64 * KIB
MEMORY_AHEAD_SHARE: Final = 0.5
MEMORY_IDLE_S: Final = 5.0
MEMORY_EVICTION_LOOKS_MAX: Final = 16
MEMORY_QUEUES_SHOWN_MAX: Final = 100
# What is read ahead at a time; from how slow a read on; else how often that is tried.
READ_AHEAD_MESSAGES_MAX: Final = 32
READ_AHEAD_BYTES_MAX: Final = 4 * MIB
READ_AHEAD_PAYS_S: Final = 0.001
READ_AHEAD_TRY_EVERY_S: Final = 10.0
# Ids that all backlogs know, and that each may, however many there are.
BACKLOG_IDS_TOTAL_MAX: Final = 128 * 1024
BACKLOG_IDS_MIN: Final = 256

# Upkeep.
TIMERS_MAX: Final = 100_000
FIRST_SIGHT_S: Final = 1.0
FORGOTTEN_AFTER_S: Final = 3600
SWEEP_EVERY_S: Final = 60.0
TOMBSTONE_KEPT_S: Final = 3600
# How long after a deletion began an id may be of a message that went with the queue.
LATE_AFTER_MS: Final = 1_000
# A purge's mark: how long it stands at least, and how far ahead of the clock ids go for one.
PURGE_MARK_KEPT_S: Final = 3600
PURGE_MARK_AHEAD_S: Final = 3600
# Purged names, and buckets of them, that mq takes away in one hop, and the share of time that this
# may take; names in one pass of the sweeper.
PURGED_PER_HOP_MAX: Final = 500
PURGED_BUCKETS_PER_HOP_MAX: Final = 1
PURGE_SHARE: Final = 0.25
PURGED_PER_PASS_MAX: Final = 20_000
# Names that one pass of the reaper takes away, so that it hears when it is told to stop.
REAPED_PER_PASS_MAX: Final = 20_000
# Names that it lists before it looks whether an archive is enabled; those in ledgers of archives
# that it looks at in a pass, and how long it lets a ledger be of which it could not do all.
REAPED_NAMES_PER_LOOK: Final = 500
REAPED_LOOKS_PER_PASS_MAX: Final = 10 * REAPED_PER_PASS_MAX
REAPED_AGAIN_S: Final = 5.0
# An archive is late that has not stored what was removed so long ago; how often that is said while
# it lasts, from which share of free bytes or inodes on the disk runs low, and how many names the
# reaper looks at in a pass, and how often from the first one on, to know.
ARCHIVE_LATE_S_DEFAULT: Final = 3600.0
ARCHIVE_LATE_SAID_EVERY_S: Final = 600.0
ARCHIVE_LOW_SHARE: Final = 0.1
ARCHIVE_LAG_NAMES_PER_PASS: Final = 20_000
ARCHIVE_LAG_EVERY_S: Final = 60.0
# Looks for what a deleted queue has in delay/ before the queue is made again.
RETIRE_PASSES_MAX: Final = 4
IDLE_WAIT_S_MIN: Final = 0.05
IDLE_WAIT_S_MAX: Final = 1.0
CLOCK_OFFSET_EVERY_S: Final = 60
# How often it is looked whether the clock was set, how long a step ahead deletes no queue, and how
# far ahead of the clock a root's newest change says at a start that the clock is, or was, wrong.
CLOCK_LOOK_EVERY_S: Final = 1.0
STEP_BELIEVED_S: Final = 3600.0
CLOCK_BEHIND_S: Final = 60.0
CLOCK_ROUND_TRIPS: Final = 3

# Schedules. Seconds between firings, or before the first; years as Quartz has them.
SCHEDULE_NAME_CHARS_MAX: Final = 40
EVERY_S_MIN: Final = 1
EVERY_S_MAX: Final = 10 * 366 * 24 * 3600
SCHEDULE_DELAY_S_MAX: Final = 10 * 366 * 24 * 3600
SCHEDULE_COUNT_MAX: Final = 1_000_000_000
CRON_CHARS_MAX: Final = 256
CRON_YEAR_MIN: Final = 1970
CRON_YEAR_MAX: Final = 2099

# Processes of one machine on one port, and how a child that died is started again: at once, then
# after waits from MIN to MAX, until it lived for LONG_LIFE.
PROCESSES_MAX: Final = 64
CHILD_RESTART_S_MIN: Final = 0.5
CHILD_RESTART_S_MAX: Final = 30.0
CHILD_LONG_LIFE_S: Final = 30.0
# How long a child may take to end, beyond what it has to drain.
CHILD_END_S: Final = 10.0

# How often a service manager is told how mq is.
STATUS_EVERY_S: Final = 30.0
# How often, and how often at most, it is looked whether those who have just connected said
# something, before those who said nothing are hung up on.
FIRST_REQUEST_LOOK_S: Final = 0.01
FIRST_REQUEST_LOOKS: Final = 100
# Of a socket that outlives the process: what connects meanwhile waits there. The system has a
# limit of its own (net.core.somaxconn).
BACKLOG_CONNECTIONS_MAX: Final = 4096

# HTTP.
DRAIN_S_DEFAULT: Final = 30.0
# How long a handler may take to clean up that a drain has ended.
HANDLER_END_S: Final = 1.0
BODY_IDLE_S_DEFAULT: Final = 30.0
KEEPALIVE_S: Final = 75.0
WAIT_S_MAX: Final = 60.0
# How far from now a due time may be told in seconds: a thousand years.
DUE_IN_S_MAX: Final = 1000 * 366 * 24 * 3600
JSON_BYTES_MAX: Final = MIB
# Of a fetch with a count, of acks, of a peek; of lines that are published at once, and their bytes.
BATCH_MESSAGES_MAX: Final = 1000
SPLIT_LINES_MAX: Final = 10_000
BATCH_BYTES_MAX: Final = 8 * MIB
# Looks for a message that is read, when it moves at each.
READ_LOOKS_MAX: Final = 5
# What is published at once goes in groups of so many, each an operation with all its files open,
# of which so many stand at a time.
BATCH_GROUP_MESSAGES: Final = 128
BATCH_GROUPS_STANDING_MAX: Final = 3
# What is fetched at once is claimed so many at a time, at first and at most.
COHORT_FIRST: Final = 16
COHORT_MAX: Final = 32
PEEK_MESSAGES_DEFAULT: Final = 100
PEEK_BODY_BYTES: Final = 4 * KIB
# How long a body that was refused is still read, so that its sender sees the answer.
LINGERING_S: Final = 2.0
# A request's line, one of its headers, and how many it may have: beyond, it is not parsed.
REQUEST_LINE_BYTES_MAX: Final = 8 * KIB
FIELD_BYTES_MAX: Final = 10 * KIB
FIELDS_MAX: Final = 128
# A request's head in all, the line before a chunk, and what stands behind the last one.
HEAD_BYTES_MAX: Final = 32 * KIB
CHUNK_LINE_BYTES_MAX: Final = KIB
TRAILER_BYTES_MAX: Final = 32 * KIB
# Chunks and frames that one connection has parsed before others have their turn.
FRAMED_PER_TURN_MAX: Final = 128
# What a client may take for a body in all, beside what is allowed between two bytes: a second for
# this many bytes of it.
BODY_BYTES_PER_S_MIN: Final = KIB
# A WebSocket's client that says nothing for so long is asked whether it is there.
PING_S_DEFAULT: Final = 20.0
RETRY_AFTER_S: Final = 1
DESCRIBE_AGE_S: Final = 1.0
# Between two log lines of one kind of 503.
COMPLAINT_EVERY_S: Final = 1.0
# How long past its due time a message in delay/ says that no mover comes for it.
OVERDUE_AFTER_S: Final = 5.0
# What counting remembers, so that it need not list: folders, queues in each that queues share, and
# names of buckets; a few hundred bytes each at most.
CENSUS_ENTRIES_MAX: Final = 100_000
# The share of time that counting may take for messages' times where no name came or went, and how
# much of it at once.
TIMES_SHARE: Final = 0.02
TIMES_READ_S: Final = 0.02

# Space held back from publishers, so that fetch and delete go on working on a full disk.
RESERVE_BYTES_MAX: Final = 64 * MIB
RESERVE_INODES_MAX: Final = 1000
RESERVE_SHARE: Final = 0.05
SPACE_AGE_S: Final = 0.1

_ID_CHARS_MAX: Final = (
    UUID_CHARS
    + len(f",p={PRIORITY_MAX}")
    + len(",k=") + KEY_WRITTEN_BYTES_MAX
    + len(f",v={VISIBILITY_S_MAX}")
    + len(f",h={HEADER_BLOCK_BYTES_MAX}")
    + len(".") + EXTENSION_CHARS_MAX
)  # fmt: skip

_RELATIONS: Final = {
    "a file's name holds the longest queue, a separator and the longest id": (
        QUEUE_NAME_CHARS_MAX + len(SIDELINE_SUFFIX) + 1 + _ID_CHARS_MAX <= FILE_NAME_BYTES_MAX
    ),
    "the open files of operations leave room under 1024 descriptors": (
        OPERATIONS_STANDING_MAX + GROUP_OPERATIONS_MAX <= 512
    ),
    "the files that batches hold open are no more than those of all other operations": (
        BATCH_GROUPS_STANDING_MAX * BATCH_GROUP_MESSAGES
        <= OPERATIONS_STANDING_MAX + GROUP_OPERATIONS_MAX
    ),
    "a cohort's bodies are a few batches": (
        COHORT_FIRST <= COHORT_MAX and COHORT_MAX * BODY_HELD_BYTES_MAX <= 4 * BATCH_BYTES_MAX
    ),
    "a cohort's claims go on at once": COHORT_MAX <= CLAIMS_MAX,
    "lines and an answer of many are in hand at once": MEMORY_IN_HAND_BYTES_MIN
    >= 2 * BATCH_BYTES_MAX,
    "a backlog feeds more claims than go on at once": BACKLOG_IDS_MAX >= 2 * CLAIMS_MAX,
    "a held body is a few chunks": CHUNK_BYTES <= BODY_HELD_BYTES_MAX <= BODY_BYTES_MAX_DEFAULT,
    "a bucket's name is told from an id's": BUCKET_DIGITS_MAX + DEEP_DIGITS < UUID_CHARS,
    "a shard is one hexadecimal digit": SHARDS_MAX <= 16,
    "one folder's files are a few looks": FOLDER_FILES_MAX <= 4 * BACKLOG_IDS_MAX,
    "idle daemons look at least once a second": IDLE_WAIT_S_MAX <= 1.0,
    "others' messages are found within a second": LOOK_INTERVAL_S < 1.0,
    "a head that ends is told from one that does not": (
        HEADER_BLOCK_BYTES_MAX + REQUEST_LINE_BYTES_MAX < HEAD_BYTES_MAX
    ),
    "what a message has no room for is parsed, and told from a long line": (
        max(REQUEST_LINE_BYTES_MAX, HEADER_BLOCK_BYTES_MAX) < FIELD_BYTES_MAX
        and FIELDS_MAX > HEADERS_MAX
    ),
    "others' settings are seen within a second": SETTINGS_AGE_S < 1.0,
    "a settings file holds every setting": SETTINGS_BYTES_MAX >= 4 * KIB,
    "a queue's history is some files": (
        HISTORY_BYTES_MIN // HISTORY_FILES_PER_QUEUE_MIN >= 64 * KIB
        and HISTORY_LINES_PER_WRITE_MAX <= HISTORY_LINES_HELD_MAX
    ),
    "a purge outlasts a publish in hand": PURGE_MARK_KEPT_S >= FORGOTTEN_AFTER_S,
    "a process may count all others as peers": PROCESSES_MAX - 1 <= PEERS_MAX,
}

for _relation, _holds in _RELATIONS.items():
    if not _holds:
        raise AssertionError(f"limits: {_relation}")
