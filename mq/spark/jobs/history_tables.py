"""The tables that a history is: their columns, in Spark's words, by their names.

A figure is null where none of the sources (archive, inodes, history files) knows it; never a guess.
Times are UTC; ages and latencies are seconds; `priority` null: all of them together.
"""

from collections.abc import Mapping
from typing import Final

TABLES: Final[Mapping[str, str]] = {
    # A row a queue: what is known of it, and where from ("archive", "inodes", "history").
    "queues": "queue STRING, sources ARRAY<STRING>, first TIMESTAMP, last TIMESTAMP, "
    "published LONG, removed LONG, ready LONG, delayed LONG, leased LONG, sidelined LONG, "
    "bytes LONG, oldest_age_s DOUBLE",
    # What happened in [start, start + step_s); of an empty step there is a row, with zeros.
    "rates": "queue STRING, priority INT, start TIMESTAMP, step_s LONG, published LONG, "
    "published_bytes LONG, fetched LONG, redelivered LONG, removed LONG, sidelined LONG",
    # `what`: publish-to-first-fetch, publish-to-removal; `start` null: of all the time.
    "latencies": "queue STRING, priority INT, what STRING, start TIMESTAMP, step_s LONG, "
    "messages LONG, mean_s DOUBLE, p50_s DOUBLE, p90_s DOUBLE, p99_s DOUBLE, p999_s DOUBLE, "
    "max_s DOUBLE",
    # How many messages were received so often: of those that are over, as far as is known.
    "receives": "queue STRING, priority INT, receives INT, messages LONG",
    # Bodies of [from, to) bytes; powers of two, and 0.
    "sizes": "queue STRING, priority INT, bytes_from LONG, bytes_to LONG, messages LONG, "
    "bytes LONG",
    # At the end of each step: published and not yet removed, and the age of the oldest such.
    "backlog": "queue STRING, priority INT, at TIMESTAMP, messages LONG, bytes LONG, "
    "oldest_age_s DOUBLE",
}
