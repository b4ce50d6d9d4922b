"""What is known, for machines: a document each tick. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from mq.tools.mqctl.top.board import Board
from mq.tools.mqctl.top.rows import Row


def document(board: Board, rows: Sequence[Row], url: str, at: str, now_s: float) -> dict[str, Any]:
    """The rows and how mq is. `at`: the time by this machine's clock. What is not known is null."""
    reach, health = board.reach, board.health
    members = health.members
    memory: Mapping[str, Any] = health.memory or {}
    return {
        "at": at,
        "url": url,
        "reached": not reach.is_lost,
        "lost_for_s": round(max(0.0, now_s - reach.since_s), 3) if reach.is_lost else None,
        "why": reach.why,
        "ready": health.readiness is not None and health.unready is None,
        "unready": health.unready,
        "readiness": health.readiness,
        "leader": members.leader if members else None,
        "members": members and sum(not each.gone for each in members.members),
        "members_gone": members and sum(each.gone for each in members.members),
        "memory_held_bytes": memory.get("held_bytes"),
        "memory_budget_bytes": memory.get("budget_bytes"),
        "queues_known": len(board.entries),
        "queues_seen": board.seen_count,
        "all_queues_listed": board.has_all_names and not board.has_more,
        "queues": [_queue(row) for row in rows],
    }


def _queue(row: Row) -> dict[str, Any]:
    seen, rates = row.seen, row.rates
    said = seen.latest if seen else None
    return {
        "name": row.name,
        "ready": said and said.ready,
        "delayed": said and said.delayed,
        "in_flight": said and said.in_flight,
        "leased": said and said.leased,
        "sidelined": said and said.sidelined,
        "overdue": said and said.overdue,
        "oldest_ready_age_s": said and said.oldest_ready_age_s,
        "published_per_s": rates and round(rates.published, 3),
        "fetched_per_s": rates and round(rates.fetched, 3),
        "deleted_per_s": rates and round(rates.deleted, 3),
        "processes": seen and seen.processes,
        "processes_counted": seen and seen.processes_counted(),
        "age_s": None if row.age_s is None else round(row.age_s, 3),
        "trouble": row.trouble,
    }
