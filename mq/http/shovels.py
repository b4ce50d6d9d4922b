"""`/{queue}/shovel`: the sideline's messages back to their queue, once, when somebody asks."""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from mq.http.answers import Answer, json_answer
from mq.http.service import Service
from mq.model.names import QueueName
from mq.protocol.shovels import progress, wanted_of

_NO_STORE: Final = {"Cache-Control": "no-store"}


async def begin(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """POST: 202 once it goes on, with its id. A body is discarded."""
    name = QueueName.parse(path["queue"])
    wanted = wanted_of(request.query)
    run_id = await service.shovels.begin(name, wanted)
    return json_answer({"id": run_id}, 202, {"Location": f"/{name.text}/shovel"})


async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET or HEAD: the run that goes on, or the last one, whichever process's, and when the next
    one of the schedule is.
    """
    name = QueueName.parse(path["queue"])
    return json_answer(progress(name, await service.shovels.read(name)), headers=_NO_STORE)


async def stop(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """DELETE: 200 where no run goes on any more, 202 where one was asked to stop and is about
    to.
    """
    name = QueueName.parse(path["queue"])
    shown = await service.shovels.stop(name)
    is_over = shown.run is None or not shown.run.state.is_under_way
    return json_answer(progress(name, shown), 200 if is_over else 202, _NO_STORE)
