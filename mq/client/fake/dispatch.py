"""From a request to what answers it: pure, over the table of routes that the server has too."""

from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from mq.client.fake.answers import batches, described, messages, queues, upkeep
from mq.client.fake.asked import Asked, Outcome, Reply, error_reply, problem_reply
from mq.client.fake.world import World
from mq.model.errors import MqError, UnknownParameter
from mq.protocol.problems import METHOD_NOT_ALLOWED, PATH_UNKNOWN
from mq.protocol.routes import Routes, routes_of

Handler: TypeAlias = Callable[[World, Asked, Mapping[str, str]], Outcome]

_HANDLERS: Final[Mapping[str, Mapping[str, Handler]]] = {
    "/{queue}": {
        "PUT": queues.create,
        "GET": queues.describe,
        "HEAD": queues.describe,
        "DELETE": queues.delete,
    },
    "/{queue}/messages": {
        "POST": batches.publish,
        "GET": batches.fetch_some,
        "DELETE": queues.purge,
    },
    "/{queue}/acks": {"POST": batches.acknowledge},
    "/{queue}/messages/{id}": {
        "GET": messages.read,
        "HEAD": messages.read,
        "PATCH": messages.reschedule,
        "DELETE": messages.delete,
    },
    "/{queue}/messages/{id}/sideline": {"POST": messages.sideline},
    "/{queue}/messages/{id}/history": {"GET": messages.history, "HEAD": messages.history},
    "/{queue}/peek": {"GET": batches.peek},
    "/{queue}/keys/{key}": {
        "GET": messages.read_key,
        "HEAD": messages.read_key,
        "DELETE": messages.delete_key,
    },
    "/{queue}/settings": {
        "GET": queues.read_settings,
        "HEAD": queues.read_settings,
        "PATCH": queues.change_settings,
    },
    "/{queue}/schedules/{schedule}": {
        "PUT": upkeep.put_schedule,
        "GET": upkeep.read_schedule,
        "HEAD": upkeep.read_schedule,
        "DELETE": upkeep.delete_schedule,
    },
    "/{queue}/schedules": {"GET": upkeep.list_schedules},
    "/{queue}/shovel": {
        "POST": upkeep.begin_shovel,
        "GET": upkeep.read_shovel,
        "HEAD": upkeep.read_shovel,
        "DELETE": upkeep.stop_shovel,
    },
    "/-/consume": {"GET": queues.consume},
    "/": {"GET": queues.read_root, "HEAD": queues.read_root},
    "/-/livez": {"GET": queues.livez, "HEAD": queues.livez},
    "/-/readyz": {"GET": queues.readyz, "HEAD": queues.readyz},
    "/-/memory": {"GET": queues.memory, "HEAD": queues.memory},
    "/-/metrics": {"GET": queues.metrics, "HEAD": queues.metrics},
    "/-/queues": {"GET": queues.read_all, "HEAD": queues.read_all},
    "/-/members": {"GET": queues.members, "HEAD": queues.members},
    "/-/refresh": {"POST": queues.refresh},
    "/-/openapi.json": {"GET": described.read, "HEAD": described.read},
    "/-/": {"GET": described.page, "HEAD": described.page},
    "/-/page/{asset}": {"GET": described.asset, "HEAD": described.asset},
}
_ROUTES: Final[Routes[Handler]] = Routes(routes_of(_HANDLERS))


def outcome_of(world: World, asked: Asked) -> Outcome:
    """What comes of a request; problems for everything that goes wrong."""
    world.catch_up()
    try:
        outcome = _outcome(world, asked)
    except MqError as error:
        outcome = error_reply(error)
    world.catch_up()
    return outcome


def _outcome(world: World, asked: Asked) -> Outcome:
    found = _ROUTES.find(asked.path)
    if found is None:
        return problem_reply(PATH_UNKNOWN)
    route, path = found
    operation = route.operations.get(asked.method)
    if operation is None:
        allow = {"Allow": route.allow}
        if asked.method == "OPTIONS":
            return Reply(204, allow)
        return problem_reply(METHOD_NOT_ALLOWED, allow)
    for name in asked.query.names():
        if name not in operation.names:
            raise UnknownParameter(name)
    return operation.handler(world, asked, path)
