"""`/` and `/-/`: entry points, health, figures, and the upkeep of all queues."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from mq.http.answers import Answer, json_answer
from mq.http.request import Request
from mq.http.service import Service
from mq.protocol.endpoints import ABOUT
from mq.protocol.queues import MEMBERS_QUEUE, members_shown
from mq.store.members.files import read_members

_NO_STORE: Final = {"Cache-Control": "no-store"}
_BY_ACCEPT: Final = {"Vary": "Accept"}


def read_root(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of `/`: 200 with name, version and entry points; a browser goes to the page."""
    if "text/html" in request.headers.get("Accept", ""):
        # Relative: a proxy may have mq below a path.
        return Answer(303, {**_BY_ACCEPT, "Location": "-/"})
    return json_answer(ABOUT, headers=_BY_ACCEPT)


def livez(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET: 200 while the event loop turns."""
    return json_answer({"alive": True})


async def readyz(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET: 200 if a file was just written and flushed, else 503 with the reason's type."""
    readiness = await service.readiness.check()
    return json_answer({"ready": True, **asdict(readiness)})


def read_memory(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET: the budget, its use, and the queues with the most cached bytes. Does not access the
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
        "evicted": figures.evicted,
        "refused": figures.refused,
        "queues_held": figures.queues,
        "queues": [asdict(each) for each in figures.largest],
    }
    return json_answer(content, headers=_NO_STORE)


async def read_metrics(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET: 200 with samples in the form that Accept asks for; without the disk's if it does not
    answer.
    """
    body, media_type = await service.scrapes.page(request.headers.get("Accept", ""))
    return Answer(200, {**_NO_STORE, "Content-Type": media_type}, body)


async def list_members(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET: 200 with each member's last report, also of those that are gone."""
    queue = MEMBERS_QUEUE.of(request.query)
    broker = service.broker
    members = await broker.committer.call(read_members, broker.root)
    now_ms = broker.root.now_ms()
    return json_answer(members_shown(members, queue, now_ms), headers=_NO_STORE)


async def refresh(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """POST: 200 with what this process found, once it has scanned; the others are notified."""
    return json_answer(asdict(await service.following.refresh_all()), headers=_NO_STORE)
