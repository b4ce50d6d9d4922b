"""`/{queue}`: create, describe, purge, delete a queue; its settings, its consumers; `/-/queues` and
`/-/trends`.
"""

from collections.abc import Mapping
from dataclasses import asdict

from mq.access.callers import Needs, Right, check, is_allowed
from mq.http.answers import Answer, json_answer
from mq.http.bodies import json_object
from mq.http.request import Request
from mq.http.service import Service
from mq.metrics.trends import read_trends as read_trends_of
from mq.model.clock import rfc3339
from mq.model.expiry import is_expired
from mq.model.names import QueueName
from mq.model.settings import DIGITS_SETTING, SHARDS_SETTING
from mq.model.trends import Range, Trends
from mq.protocol.bodies import patch_of
from mq.protocol.conditions import parse_tags
from mq.protocol.queues import (
    AFTER,
    COUNT,
    DIGITS,
    QUEUES_LISTED_DEFAULT,
    SHARDS,
    TRENDS_QUEUE,
    TRENDS_RANGE,
    listed,
    trends_shown,
)
from mq.store.core.facts import Configured
from mq.store.operations.queues import WantedShape
from mq.store.scan.census import FIGURES, AsOf
from mq.store.settings.registry import list_queues


async def read_all(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET of `/-/queues`: a page of queues by name, sidelines included, to which the caller has any
    right.
    """
    count = COUNT.of(request.query) or QUEUES_LISTED_DEFAULT
    after = AFTER.of(request.query)
    broker = service.broker
    caller = request.caller()

    def is_shown(queue: QueueName) -> bool:
        return is_allowed(caller, Needs.ANY, queue.text)

    # One more tells whether there is a next page.
    found = await broker.committer.call(list_queues, broker.root, count + 1, after, is_shown)
    return json_answer(listed(found, count), headers={"Cache-Control": "no-store"})


async def read_trends(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET of `/-/trends`: of a queue, or of all queues together. The sums are empty for a caller
    without a right to all queues.
    """
    queue = TRENDS_QUEUE.of(request.query)
    range_ = Range(TRENDS_RANGE.of(request.query) or Range.HOUR)
    broker = service.broker
    if queue is not None:
        check(request.caller(), Needs.ANY, queue.text)
        await broker.queue(queue)
    elif not is_allowed(request.caller(), Needs.ANY, None):
        empty = trends_shown(range_, queue, Trends(), ())
        return json_answer(empty, headers={"Cache-Control": "no-store"})
    last, points = await broker.committer.call(read_trends_of, broker.root, range_, queue)
    found = trends_shown(range_, queue, last, points)
    return json_answer(found, headers={"Cache-Control": "no-store"})


async def create(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """PUT: 201 if the queue was created, 200 if it existed and has not expired."""
    name = QueueName.parse(path["queue"])
    wanted = WantedShape(DIGITS.of(request.query), SHARDS.of(request.query))
    created = await service.queue_room.create(name, wanted)
    if not created:
        (await service.broker.queue(name)).check_life()
    return json_answer({"name": name.text}, 201 if created else 200, {"Location": f"/{name.text}"})


async def describe(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET: counts, the oldest age, this process's totals, settings."""
    name = QueueName.parse(path["queue"])
    queue, description = await service.broker.describe(name)
    counts = description.counts
    oldest_ms = counts.oldest_ready_ms
    age_s = None if oldest_ms is None else max(0, counts.as_of.ready_ms - oldest_ms) / 1000
    return json_answer(
        {
            "name": name.text,
            "ready": counts.ready,
            "delayed": counts.delayed,
            "in_flight": counts.in_flight,
            "overdue": counts.overdue,
            "removed": counts.removed,
            "leased": counts.leased,
            "sidelined": counts.sidelined,
            "foreign": counts.foreign,
            "oldest_ready_age_s": age_s,
            "expired": is_expired(queue.settings, service.broker.root.now_ms()),
            "totals": asdict(queue.totals),
            "lifetime": description.lifetime,
            "process": {"index": service.settings.process_index, "of": service.settings.processes},
            "as_of": _as_of(counts.as_of, service.broker.root.now_ms()),
            "settings": {
                **queue.settings.as_json(),
                DIGITS_SETTING: description.shape.digits,
                SHARDS_SETTING: description.shape.shards,
            },
        }
    )


def _as_of(as_of: AsOf, now_ms: int) -> dict[str, str]:
    """The time of each figure; totals are current."""
    counts = {figure: rfc3339(getattr(as_of, of)) for figure, of in FIGURES.items()}
    return {**counts, "totals": rfc3339(now_ms)}


async def purge(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """DELETE of its messages: 202 once no message published until now is delivered any more."""
    name = QueueName.parse(path["queue"])
    before_ms = await service.broker.purge(name)
    return json_answer({"purged_before": rfc3339(before_ms)}, 202)


async def delete(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """DELETE: 200 once the queue and its messages are deleted, durably."""
    name = QueueName.parse(path["queue"])
    await service.broker.delete_queue(name)
    return json_answer({"name": name.text})


async def read_settings(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET of `/{queue}/settings`: the effective values."""
    return _configured(await service.broker.settings(QueueName.parse(path["queue"])))


async def change_settings(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """PATCH of `/{queue}/settings`: 200 with the effective values once they are on stable media."""
    name = QueueName.parse(path["queue"])
    await service.broker.queue(name)  # A missing queue is reported before the body is read.
    if_match = parse_tags(request.headers.getall("If-Match", []))
    patch = patch_of(await json_object(service, request))
    if isinstance(into := patch.get("sideline_to"), str):
        check(request.caller(), Right.PUBLISH, into)  # The queue's messages will move there.
    changed = await service.broker.change_settings(name, patch, if_match)
    await service.following.tell_of_change()
    return _configured(changed)


def _configured(found: Configured) -> Answer:
    headers = {"ETag": f'"{found.tag}"', "Cache-Control": "no-store"}
    return json_answer(found.as_json(), headers=headers)


async def list_consumers(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET: the queue's consumers in all processes."""
    name = QueueName.parse(path["queue"])
    await service.broker.queue(name)
    found = await service.roster.consumers(name)
    return json_answer(
        {"consumers": found.consumers, "complete": found.complete},
        headers={"Cache-Control": "no-store"},
    )


async def end_consumer(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """DELETE: 200 once the consumer has ended and what it held is released."""
    name = QueueName.parse(path["queue"])
    await service.broker.queue(name)
    await service.roster.end_consumer(name, path["consumer"])
    return json_answer({"id": path["consumer"]})
