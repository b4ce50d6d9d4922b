"""The handlers: what answers each request of the table of routes.

`/-/openapi.json` is made from the routes, and from what `openapi` says of each operation's answers.
"""

from collections.abc import Mapping
from typing import Final

from mq.http import (
    batches,
    health,
    history,
    keys,
    members,
    memory,
    messages,
    metrics,
    peeking,
    queues,
    reading,
    schedules,
    settings,
    shovels,
    sidelines,
)
from mq.http.consume.connection import consume
from mq.http.openapi.serving import reader_of
from mq.http.page import serving as page
from mq.http.routing import Handler, Route
from mq.protocol.routes import routes_of

_read_openapi: Final = reader_of(lambda: ROUTES)

_HANDLERS: Final[Mapping[str, Mapping[str, Handler]]] = {
    "/{queue}": {
        "PUT": queues.create,
        "GET": queues.describe,
        "HEAD": queues.describe,
        "DELETE": queues.delete,
    },
    "/{queue}/messages": {"POST": batches.publish, "GET": batches.fetch, "DELETE": queues.purge},
    "/{queue}/acks": {"POST": batches.acknowledge},
    "/{queue}/messages/{id}": {
        "GET": reading.read,
        "HEAD": reading.read,
        "PATCH": messages.reschedule,
        "DELETE": messages.delete,
    },
    "/{queue}/messages/{id}/sideline": {"POST": sidelines.sideline},
    "/{queue}/messages/{id}/history": {"GET": history.read, "HEAD": history.read},
    "/{queue}/peek": {"GET": peeking.peek},
    "/{queue}/keys/{key}": {"GET": keys.read, "HEAD": keys.read, "DELETE": keys.delete},
    "/{queue}/settings": {
        "GET": settings.read,
        "HEAD": settings.read,
        "PATCH": settings.change,
    },
    "/{queue}/schedules/{schedule}": {
        "PUT": schedules.put,
        "GET": schedules.read,
        "HEAD": schedules.read,
        "DELETE": schedules.delete,
    },
    "/{queue}/schedules": {"GET": schedules.read_all},
    "/{queue}/shovel": {
        "POST": shovels.begin,
        "GET": shovels.read,
        "HEAD": shovels.read,
        "DELETE": shovels.stop,
    },
    "/-/consume": {"GET": consume},
    "/": {"GET": health.read_root, "HEAD": health.read_root},
    "/-/livez": {"GET": health.livez, "HEAD": health.livez},
    "/-/readyz": {"GET": health.readyz, "HEAD": health.readyz},
    "/-/memory": {"GET": memory.read, "HEAD": memory.read},
    "/-/metrics": {"GET": metrics.read, "HEAD": metrics.read},
    "/-/queues": {"GET": queues.read_all, "HEAD": queues.read_all},
    "/-/members": {"GET": members.read_all, "HEAD": members.read_all},
    "/-/refresh": {"POST": members.refresh},
    "/-/openapi.json": {"GET": _read_openapi, "HEAD": _read_openapi},
    "/-/": {"GET": page.read, "HEAD": page.read},
    "/-/page/{asset}": {"GET": page.read_asset, "HEAD": page.read_asset},
}

ROUTES: Final[list[Route]] = routes_of(_HANDLERS)
