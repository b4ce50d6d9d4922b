"""`/-/memory`: what this process holds in memory, and for whom."""

from collections.abc import Mapping
from dataclasses import asdict

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.service import Service


async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: the budget, its holders, and the queues of which most is kept; nothing is asked of the
    disk.
    """
    broker = service.broker
    figures = broker.memory.figures()
    content = {
        "process": service.settings.process_index,
        "budget_bytes": figures.budget_bytes,
        "held_bytes": figures.held_bytes,
        "holders": {
            holder.name.lower(): asdict(found) for holder, found in figures.holders.items()
        },
        "ids": broker.ids.total,
        "hits": figures.hits,
        "misses": figures.misses,
        "refused": figures.refused,
        "queues_held": figures.queues,
        "queues": [asdict(each) for each in figures.largest],
    }
    return json_answer(content, headers={"Cache-Control": "no-store"})
