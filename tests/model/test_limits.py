"""How limits of several packages relate."""

import pytest

from mq.access import callers, key_url, tokens
from mq.broker import batches, claims, fetching, memory, publisher, ready
from mq.client.worker import choices, leases
from mq.coordination.coordinator import (
    ASSIGN_EVERY_S,
    MEMBER_BELIEVES_S,
    MEMBER_GONE_S,
    MEMBER_LOOKS_EVERY_S,
    MEMBER_RENEWED_EVERY_S,
)
from mq.daemon.cli import PEERS_MAX
from mq.http import connection, request
from mq.http.consume import sending, socket
from mq.model import limits, members, names, settings
from mq.protocol import fetching as fetch_terms
from mq.protocol.consume import frames, session
from mq.runtime import server_settings, upkeep
from mq.store.bulk import windows
from mq.store.core.facts import FACTS_SETTLE_S, SETTINGS_AGE_S
from mq.store.core.recording import HISTORY_LINES_PER_WRITE_MAX
from mq.store.disk.commit import OPERATIONS_STANDING_MAX
from mq.store.format import bucket_names
from mq.store.format.pipeline import WINDOW_BITS
from mq.store.format.settings import SETTINGS_BYTES_MAX
from mq.store.history.files import HISTORY_FILES_PER_QUEUE_MIN
from mq.store.history.recording import HISTORY_LINES_HELD_MAX
from mq.store.members.files import TOLD_BYTES_MAX
from mq.store.operations.purge import PURGE_MARK_KEPT_S

QUEUE_CHARS_MAX = names.QUEUE_NAME_CHARS_MAX + len(limits.SIDELINE_SUFFIX)
ID_CHARS_MAX = (
    limits.UUID_CHARS
    + len(f",p={limits.PRIORITY_MAX}")
    + len(",k=") + limits.KEY_WRITTEN_BYTES_MAX
    + len(",g=") + limits.GROUP_DIGITS
    + len(f",t={limits.TAGS_MAX}")
    + len(f",v={limits.VISIBILITY_S_MAX}")
    + len(f",e={limits.MESSAGE_TTL_S_MAX}")
    + len(f",h={limits.HEADER_BLOCK_BYTES_MAX}")
    + len(".") + names.EXTENSION_CHARS_MAX
)  # fmt: skip

# A pack's id, and an item's, has none of k=, g=, t= and e=.
PACK_ID_CHARS_MAX = (
    limits.UUID_CHARS
    + len(f",p={limits.PRIORITY_MAX}")
    + len(f",v={limits.VISIBILITY_S_MAX}")
    + len(f",n={limits.PACK_MESSAGES_MAX}")
    + len(f",h={limits.HEADER_BLOCK_BYTES_MAX}")
    + len(".") + names.EXTENSION_CHARS_MAX
)  # fmt: skip

RELATIONS = {
    "a pack's place has three hexadecimal digits": limits.PACK_MESSAGES_MAX < 16**3,
    "a folder of a parting has a name": (
        QUEUE_CHARS_MAX + 1 + PACK_ID_CHARS_MAX + len(".0123456789abcdef.delayed")
        <= limits.FILE_NAME_BYTES_MAX
    ),
    "a claim holds a pack": limits.PACK_BYTES_MAX <= limits.BODY_HELD_BYTES_MAX,
    "a file's name holds the longest queue, a separator and the longest id": (
        QUEUE_CHARS_MAX + 1 + ID_CHARS_MAX <= limits.FILE_NAME_BYTES_MAX
    ),
    "the open files of operations leave room under 1024 descriptors": (
        OPERATIONS_STANDING_MAX + limits.GROUP_OPERATIONS_MAX <= 512
    ),
    "batches hold no more files open than all other operations": (
        publisher.BATCH_GROUPS_STANDING_MAX * batches.BATCH_GROUP_MESSAGES
        <= OPERATIONS_STANDING_MAX + limits.GROUP_OPERATIONS_MAX
    ),
    "a cohort's bodies are a few batches": (
        fetching.COHORT_FIRST <= fetching.COHORT_MAX
        and fetching.COHORT_MAX * limits.BODY_HELD_BYTES_MAX <= 4 * limits.BATCH_BYTES_MAX
    ),
    "a cohort's claims go on at once": fetching.COHORT_MAX <= claims.CLAIMS_MAX,
    "a batch's lines and its answer are in flight at once": (
        memory.MEMORY_IN_HAND_BYTES_MIN >= 2 * limits.BATCH_BYTES_MAX
    ),
    "a ready list feeds more claims than go on at once": (
        ready.BACKLOG_IDS_MAX >= 2 * claims.CLAIMS_MAX
    ),
    "a held body is a few chunks": (
        limits.CHUNK_BYTES <= limits.BODY_HELD_BYTES_MAX <= limits.BODY_BYTES_MAX_DEFAULT
    ),
    "a bucket's name differs from an id's": (
        limits.BUCKET_DIGITS_MAX + bucket_names.DEEP_DIGITS < limits.UUID_CHARS
    ),
    "a shard is one hexadecimal digit": limits.SHARDS_MAX <= 16,
    "one folder's files are a few scans": limits.FOLDER_FILES_MAX <= 4 * ready.BACKLOG_IDS_MAX,
    "idle daemons make a pass at least once a second": upkeep.IDLE_WAIT_S_MAX <= 1.0,
    "others' messages are found within a second": limits.LOOK_INTERVAL_S < 1.0,
    "a head that ends is longer than its message's headers": (
        limits.HEADER_BLOCK_BYTES_MAX < request.HEAD_BYTES_MAX
    ),
    "headers that no message can have are still parsed, and refused for what they are": (
        limits.HEADER_BLOCK_BYTES_MAX < request.FIELD_BYTES_MAX
        and request.FIELDS_MAX > limits.HEADERS_MAX
    ),
    "others' settings are seen within a second": SETTINGS_AGE_S < 1.0,
    "facts are settled once all processes must look again": FACTS_SETTLE_S > SETTINGS_AGE_S,
    "a settings file holds every setting": SETTINGS_BYTES_MAX >= 4 * limits.KIB,
    "a queue's history is several files": (
        limits.HISTORY_BYTES_MIN // HISTORY_FILES_PER_QUEUE_MIN >= 64 * limits.KIB
        and HISTORY_LINES_PER_WRITE_MAX <= HISTORY_LINES_HELD_MAX
    ),
    "a purge's mark outlasts a publish": PURGE_MARK_KEPT_S >= limits.FORGOTTEN_AFTER_S,
    "a process may count all others as peers": limits.PROCESSES_MAX - 1 <= PEERS_MAX,
    "a slow head ends before an idle connection": (
        server_settings.HEAD_S_DEFAULT < connection.KEEPALIVE_S
    ),
    "an answer with keys takes less time than passes between requests": (
        key_url.JWKS_ANSWER_S < key_url.JWKS_AGAIN_S
    ),
    "a waiting fetch is no slow head": server_settings.HEAD_S_DEFAULT < fetch_terms.WAIT_S_MAX,
    "a token fits a header": tokens.TOKEN_SHOWN_CHARS_MAX < request.FIELD_BYTES_MAX,
    "a pattern is no longer than a name": callers.PATTERN_CHARS_MAX <= limits.FILE_NAME_BYTES_MAX,
    "a command names as many ids as a batch has": (
        limits.BATCH_MESSAGES_MAX * (limits.FILE_NAME_BYTES_MAX + len('"", ')) + limits.KIB
        <= socket.COMMAND_BYTES_MAX
    ),
    "what is claimed ahead for a connection is within its credit": (
        session.TURN_MESSAGES_MIN <= session.CLAIMED_AHEAD_MAX <= frames.CREDIT_MAX
    ),
    "a client that does not read is no consumer before its messages are released": (
        sending.FULL_S_MAX < sending.UNSENT_S_MAX
    ),
    "a folder of a bulk publish is within one window": (
        windows.FOLD_ROWS_MAX // 2048 + 2 <= windows.WINDOW_SPARE_MS <= 1 << WINDOW_BITS
    ),
    "a window is one folder below a bucket": (
        WINDOW_BITS == 4 * (12 - bucket_names.BUCKET_DIGITS_DEFAULT - bucket_names.DEEP_DIGITS)
    ),
    "a member that reports nothing new is not taken for gone": (
        members.TOLD_GONE_S >= 3 * members.TOLD_EVERY_S
    ),
    "the queues in a member's report leave room for the rest": (
        members.TOLD_QUEUES_MAX * (QUEUE_CHARS_MAX + 4) <= TOLD_BYTES_MAX * 3 // 4
    ),
    "the receives of a message that was received too often can be counted": (
        settings.MAX_RECEIVES_MAX < limits.RECEIVES_MAX
    ),
    "a shovel's own limit of receives can be counted": (
        settings.SHOVEL_MAX_RECEIVES_DEFAULT <= limits.RECEIVES_MAX
    ),
    "a member renews its presence more than once before it is gone": (
        2 * MEMBER_RENEWED_EVERY_S < MEMBER_BELIEVES_S < MEMBER_GONE_S
    ),
    "a gone member's queues are assigned again within two assignments": (
        MEMBER_GONE_S + 2 * MEMBER_LOOKS_EVERY_S + MEMBER_RENEWED_EVERY_S <= 2 * ASSIGN_EVERY_S
    ),
    "a worker asks for at most a batch": (
        limits.CONSUMERS_MAX + choices.WORKER_PREFETCH_MAX <= limits.BATCH_MESSAGES_MAX
    ),
    "a lease is extended before it has lapsed": 0 < leases.LEASE_LEFT_SHARE < 1,
}


@pytest.mark.parametrize("relation", RELATIONS)
def test_limits_relate(relation: str) -> None:
    assert RELATIONS[relation]
