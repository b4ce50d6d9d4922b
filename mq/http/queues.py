"""`/{queue}`: make, describe, purge and delete a queue; and `/-/queues`, which lists them."""

from collections.abc import Mapping
from dataclasses import asdict

from aiohttp import web

from mq.access.rules import Needs, is_allowed
from mq.http.access import caller_of
from mq.http.answers import Answer, json_answer
from mq.http.service import Service
from mq.model.clock import rfc3339
from mq.model.expiry import is_expired
from mq.model.names import QueueName
from mq.model.settings import DIGITS_SETTING, SHARDS_SETTING
from mq.model.upkeep_limits import QUEUES_LISTED_DEFAULT
from mq.protocol.queues import AFTER, COUNT, DIGITS, SHARDS, listed
from mq.store.operations.queues import WantedShape
from mq.store.scan.counting import FIGURES, AsOf
from mq.store.settings.registry import list_queues


async def read_all(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET of `/-/queues`: a page of the queues that there are, by name, sidelines too; of those to
    which the caller has any right.
    """
    count = COUNT.of(request.query) or QUEUES_LISTED_DEFAULT
    after = AFTER.of(request.query)
    broker = service.broker
    caller = caller_of(service.access, request)

    def is_shown(queue: QueueName) -> bool:
        return is_allowed(caller, Needs.ANY, queue.text)

    # One more tells whether there is a next page.
    found = await broker.committer.call(list_queues, broker.root, count + 1, after, is_shown)
    return json_answer(listed(found, count), headers={"Cache-Control": "no-store"})


async def create(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """PUT: 201 when it was made, 200 when it was there, not expired. The body is discarded."""
    name = QueueName.parse(path["queue"])
    wanted = WantedShape(DIGITS.of(request.query), SHARDS.of(request.query))
    created = await service.queue_room.create(name, wanted)
    if not created:
        (await service.broker.queue(name)).check_life()
    return json_answer({"name": name.text}, 201 if created else 200, {"Location": f"/{name.text}"})


async def describe(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: counts, oldest age, what this process did, settings."""
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
            "process": {
                "index": service.settings.process_index,
                "of": service.settings.processes,
            },
            "as_of": _as_of(counts.as_of, service.broker.root.now_ms()),
            "settings": {
                **queue.settings.as_json(),
                DIGITS_SETTING: description.shape.digits,
                SHARDS_SETTING: description.shape.shards,
            },
        }
    )


def _as_of(as_of: AsOf, now_ms: int) -> dict[str, str]:
    """Of when each figure is; totals are of now."""
    counts = {figure: rfc3339(getattr(as_of, of)) for figure, of in FIGURES.items()}
    return {**counts, "totals": rfc3339(now_ms)}


async def purge(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """DELETE of its messages: 202 once none that was published until now is served any more."""
    name = QueueName.parse(path["queue"])
    before_ms = await service.broker.purge(name)
    return json_answer({"purged_before": rfc3339(before_ms)}, 202)


async def delete(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """DELETE: the queue and its messages in every folder."""
    name = QueueName.parse(path["queue"])
    await service.broker.delete_queue(name)
    return json_answer({"name": name.text})
