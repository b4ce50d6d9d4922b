"""`/{queue}`: make, describe, purge and delete a queue."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from aiohttp import web

from mq.http.answers import Answer, json_answer, rfc3339
from mq.http.query import Whole
from mq.http.service import Service
from mq.limits import BUCKET_DIGITS_MAX, BUCKET_DIGITS_MIN, SHARDS_MAX
from mq.names import QueueName
from mq.settings import DIGITS_SETTING, SHARDS_SETTING
from mq.store.counting import FIGURES, AsOf
from mq.store.queues import WantedShape

DIGITS: Final = Whole(
    DIGITS_SETTING, BUCKET_DIGITS_MIN, BUCKET_DIGITS_MAX,
    "The width of the queue's time windows, as hexadecimal digits of an id. Left out, it asks for "
    "nothing of a queue that is there.",
)  # fmt: skip
SHARDS: Final = Whole(
    SHARDS_SETTING, 1, SHARDS_MAX,
    "Into how many shards each window is parted. Left out, it asks for nothing of a queue that is "
    "there.",
)  # fmt: skip


async def create(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """PUT: 201 when it was made, 200 when it was there. The body is discarded."""
    name = QueueName.parse(path["queue"])
    wanted = WantedShape(DIGITS.of(request.query), SHARDS.of(request.query))
    created = await service.broker.create_queue(name, wanted)
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
