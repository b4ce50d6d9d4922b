"""Calls that concern a queue as a whole: make, describe, delete and purge it; list all."""

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from mq.client.calls.call import Again, Call, done_after
from mq.client.errors import QueueNotFound
from mq.client.transport import Answer, Request
from mq.client.values import Description, QueueEntry
from mq.client.wire import reading, writing
from mq.client.wire.reading import Members

_CREATED: Final = 201
_OK: Final = 200
_ACCEPTED: Final = 202


def create(queue: str, bucket: int | None, shards: int | None) -> Call[bool]:
    """Makes the queue; whether this made it."""
    said = writing.query({"bucket": writing.whole(bucket), "shards": writing.whole(shards)})
    request = Request("PUT", writing.path(queue), said)
    return Call(request, lambda answer: reading.checked(answer, _OK, _CREATED).status == _CREATED)


def describe(queue: str) -> Call[Description]:
    """Counts and settings."""
    return Call(Request("GET", writing.path(queue)), _description)


def _description(answer: Answer) -> Description:
    said = Members.of(reading.checked(answer, _OK))
    as_of = said.inner("as_of")
    return Description(
        name=said.text("name"),
        ready=said.whole("ready"),
        delayed=said.whole("delayed"),
        in_flight=said.whole("in_flight"),
        leased=said.whole("leased"),
        overdue=said.whole("overdue"),
        removed=said.whole("removed"),
        sidelined=said.whole("sidelined"),
        foreign=said.whole("foreign"),
        oldest_ready_age_s=said.number_or_none("oldest_ready_age_s"),
        expired=said.truth("expired"),
        totals=said.wholes("totals"),
        process=said.wholes("process"),
        as_of={name: as_of.time(name) for name in as_of.said},
        settings=said.inner("settings").said,
        said=said.said,
    )


def delete(queue: str) -> Call[None]:
    """Deletes the queue and its messages."""
    request = Request("DELETE", writing.path(queue))
    return Call(request, _nothing, when_repeated=done_after(QueueNotFound))


def _nothing(answer: Answer) -> None:
    reading.checked(answer, _OK, _ACCEPTED)


def purge(queue: str) -> Call[datetime]:
    """Purges what was published until now; until when. A second one would purge more."""
    request = Request("DELETE", writing.path(queue, "messages"))
    return Call(request, _purged_before, Again.UNDONE)


def _purged_before(answer: Answer) -> datetime:
    return Members.of(reading.checked(answer, _ACCEPTED)).time("purged_before")


def page(after: str | None, count: int | None) -> Call[tuple[list[QueueEntry], str | None]]:
    """A page of all queues, and behind which name the next one begins."""
    said: Mapping[str, str | None] = {"after": after, "count": writing.whole(count)}
    return Call(Request("GET", "/-/queues", writing.query(said)), _page)


def _page(answer: Answer) -> tuple[list[QueueEntry], str | None]:
    said = Members.of(reading.checked(answer, _OK))
    entries = [
        QueueEntry(each.text("name"), each.truth("sideline")) for each in said.each("queues")
    ]
    return entries, said.text_or_none("next")
