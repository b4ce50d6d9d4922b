"""`/-/members` and `/-/refresh`: who does the upkeep of queues, and having all look at them."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Final

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.service import Service
from mq.protocol.members import QUEUE, shown
from mq.store.members.files import read_members

_HEADERS: Final = {"Cache-Control": "no-store"}


async def read_all(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET: 200 with what each member told last, also those that are gone."""
    queue = QUEUE.of(request.query)
    broker = service.broker
    members = await broker.committer.call(read_members, broker.root)
    now_ms = broker.root.now_ms()
    return json_answer(shown(members, queue, now_ms), headers=_HEADERS)


async def refresh(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """POST: 200 with what this process found, once it has looked; all others have been asked to.
    The body is discarded.
    """
    return json_answer(asdict(await service.following.refresh_all()), headers=_HEADERS)
