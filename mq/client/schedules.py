"""Creates, reads, lists and deletes a queue's schedules."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from http import HTTPStatus
from typing import Any, Literal

from mq.client import wire
from mq.client.bodies import GivenBody
from mq.client.errors import ScheduleNotFound
from mq.client.publishing import content_of, tags_given
from mq.client.sending import Call, OfQueue, done_after, nothing
from mq.client.transport import Answer
from mq.client.values import ABSENT, Schedule
from mq.client.wire import Members
from mq.protocol import envelopes, schedules


class Schedules(OfQueue):
    """A queue's schedules."""

    __slots__ = ()

    async def schedule(
        self,
        name: str,
        body: GivenBody = b"",
        *,
        json: Any = ABSENT,
        every_s: float | None = None,
        delay_s: float | None = None,
        cron: str | None = None,
        tz: str | None = None,
        count: int | None = None,
        until: datetime | str | None = None,
        overlap: Literal["allow", "skip"] | None = None,
        after: Literal["due", "done"] | None = None,
        misfire: Literal["once", "skip", "all"] | None = None,
        priority: int | None = None,
        key: str | None = None,
        visibility_s: int | None = None,
        ttl_s: int | None = None,
        group: str | None = None,
        tags: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> Schedule:
        """Creates a schedule, or replaces the one of this name; the same schedule again changes
        nothing. Durable on return. `body` or `json`: of each message, as in `publish`. Either
        `every_s`, with `delay_s` before the first message; or `cron`, in the time zone `tz`.
        `count` and `until` end it. `after="done"` counts the next firing from the end of the last
        message. Of missed firings `misfire` fires one, none, or all. `priority`, `key`,
        `visibility_s`, `ttl_s`, `group` and `tags`: of each message, as in `publish`. Raises
        QueueNotFound, Refused; ValueError and TypeError for an argument that cannot be sent.
        """
        content, default = content_of(body, json)
        request = wire.request_to(
            "put_schedule",
            *(self.name, name),
            query=(
                (schedules.EVERY, every_s),
                (schedules.DELAY, delay_s),
                (schedules.CRON, cron),
                (schedules.ZONE, tz),
                (schedules.COUNT, count),
                (schedules.UNTIL, until),
                (schedules.OVERLAP, overlap),
                (schedules.AFTER, after),
                (schedules.MISFIRE, misfire),
                (envelopes.PRIORITY, priority),
                (envelopes.KEY, key),
                (envelopes.VISIBILITY, visibility_s),
                (envelopes.TTL, ttl_s),
                (envelopes.GROUP, group),
                *((envelopes.TAG, tag) for tag in tags_given(tags)),
            ),
            headers=wire.message_headers(content_type, headers, default),
            body=content,
        )
        return await self._sender.send(Call(request, _put))

    async def schedules(self) -> list[Schedule]:
        """Lists the queue's schedules by name, without their bodies."""
        request = wire.request_to("list_schedules", self.name)
        return await self._sender.send(Call(request, _all))

    async def get_schedule(self, name: str) -> Schedule:
        """Reads a schedule, how often it has fired, and when it fires next. Raises
        ScheduleNotFound.
        """
        request = wire.request_to("read_schedule", self.name, name)
        return await self._sender.send(Call(request, _one))

    async def delete_schedule(self, name: str) -> None:
        """Deletes a schedule; its messages stay. Durable on return. Raises ScheduleNotFound."""
        request = wire.request_to("delete_schedule", self.name, name)
        call = Call(request, nothing, when_repeated=done_after(ScheduleNotFound))
        await self._sender.send(call)


def _put(answer: Answer) -> Schedule:
    return _schedule(Members.of(answer), is_new=answer.status == HTTPStatus.CREATED)


def _one(answer: Answer) -> Schedule:
    return _schedule(Members.of(answer))


def _all(answer: Answer) -> list[Schedule]:
    return [_listed(each) for each in Members.of(answer).each("schedules")]


def _listed(found: Members) -> Schedule:
    problem = found.problem("problem")
    if problem is None:
        return _schedule(found)
    return Schedule(
        *(found.text("name"), None, None, None, None, None, False, 0, 0, None, None, None),
        *("", "", "", None, None, None, None, None, (), 0, {}, b""),
        problem=problem,
    )


def _schedule(found: Members, is_new: bool | None = None) -> Schedule:
    return found.value(
        Schedule,
        every_s=found.number_or_none("every"),
        delay_s=found.number_or_none("delay"),
        visibility_s=found.whole_or_none("visibility"),
        ttl_s=found.whole_or_none("ttl"),
        tags=found.listed_texts("tags"),
        body=found.body(),
        is_new=is_new,
        problem=None,
    )
