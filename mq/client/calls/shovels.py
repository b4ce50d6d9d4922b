"""Calls that begin, look at and stop a queue's shovel."""

from typing import Final

from mq.client.calls.call import Again, Call
from mq.client.transport import Answer, Request
from mq.client.values import ShovelProgress
from mq.client.wire import reading, writing
from mq.client.wire.reading import Members

_OK: Final = 200
_ACCEPTED: Final = 202


def begin(
    queue: str,
    *,
    limit: int | None,
    rate: int | None,
    older_than_s: float | None,
    key: str | None,
    priority: str | int | None,
    max_receives: int | None,
    dry_run: bool | None,
) -> Call[str]:
    """Begins a run; its id. A second one would be refused for the first."""
    said = writing.query(
        {
            "limit": writing.whole(limit),
            "rate": writing.whole(rate),
            "older_than": writing.seconds(older_than_s),
            "key": key,
            "priority": None if priority is None else str(priority),
            "max_receives": writing.whole(max_receives),
            "dry_run": writing.switch(dry_run),
        }
    )
    return Call(Request("POST", writing.path(queue, "shovel"), said), _id, Again.UNDONE)


def _id(answer: Answer) -> str:
    return Members.of(reading.checked(answer, _ACCEPTED)).text("id")


def read(queue: str) -> Call[ShovelProgress]:
    """How far it is."""
    return Call(Request("GET", writing.path(queue, "shovel")), _progress)


def stop(queue: str) -> Call[ShovelProgress]:
    """Has it end after what it has in hand; how it stands."""
    return Call(Request("DELETE", writing.path(queue, "shovel")), _progress)


def _progress(answer: Answer) -> ShovelProgress:
    said = Members.of(reading.checked(answer, _OK, _ACCEPTED))
    has_run = "id" in said.said
    return ShovelProgress(
        queue=said.text("queue"),
        state=said.text("state"),
        id=said.text_or_none("id"),
        by=said.text_or_none("by"),
        dry_run=has_run and said.truth("dry_run"),
        criteria=said.inner("criteria").said if has_run else {},
        rate=said.whole_or_none("rate"),
        concurrency=said.whole_or_none("concurrency"),
        began=said.time_or_none("began"),
        ended=said.time_or_none("ended"),
        looked_at=said.whole("looked_at") if has_run else 0,
        moved=said.whole("moved") if has_run else 0,
        stayed=said.wholes("stayed") if has_run else {},
        failed=said.whole("failed") if has_run else 0,
        error=said.text_or_none("error"),
        interval_s=said.number_or_none("interval_s"),
        next=said.time_or_none("next"),
    )
