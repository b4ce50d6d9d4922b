"""The table of routes: every path, what each method does there, and what it may be told.

`/-/openapi.json` is made from it, and from what `openapi` says of each operation's answers.
"""

from typing import Final

from mq.http import (
    batches,
    envelopes,
    health,
    history,
    keys,
    messages,
    peeking,
    queues,
    reading,
    schedules,
    settings,
    sidelines,
)
from mq.http.openapi.serving import reader_of
from mq.http.routing import Operation, Route

_PUBLISH: Final = Operation(
    batches.publish,
    (
        envelopes.DELAY,
        envelopes.AT,
        envelopes.PRIORITY,
        envelopes.KEY,
        envelopes.VISIBILITY,
        batches.SPLIT,
    ),
    (envelopes.IDEMPOTENCY,),
)
_FETCH: Final = Operation(
    batches.fetch,
    (messages.WAIT, messages.VISIBILITY, batches.COUNT, messages.SELECT),
    (messages.PREFER,),
)
_RANGED: Final = (reading.RANGE, reading.IF_RANGE)
_MATCHED: Final = (messages.IF_MATCH,)

_OPENAPI: Final = Operation(reader_of(lambda: ROUTES))

ROUTES: Final[list[Route]] = [
    Route(
        "/{queue}",
        {
            "PUT": Operation(queues.create, (queues.DIGITS, queues.SHARDS)),
            "GET": Operation(queues.describe),
            "HEAD": Operation(queues.describe),
            "DELETE": Operation(queues.delete),
        },
    ),
    Route(
        "/{queue}/messages",
        {"POST": _PUBLISH, "GET": _FETCH, "DELETE": Operation(queues.purge)},
    ),
    Route("/{queue}/acks", {"POST": Operation(batches.acknowledge)}),
    Route(
        "/{queue}/messages/{id}",
        {
            "GET": Operation(reading.read, headers=_RANGED),
            "HEAD": Operation(reading.read),
            "PATCH": Operation(messages.reschedule, headers=_MATCHED),
            "DELETE": Operation(messages.delete, headers=_MATCHED),
        },
    ),
    Route(
        "/{queue}/messages/{id}/sideline",
        {"POST": Operation(sidelines.sideline, (sidelines.REASON,), _MATCHED)},
    ),
    Route(
        "/{queue}/messages/{id}/history",
        {"GET": Operation(history.read), "HEAD": Operation(history.read)},
    ),
    Route(
        "/{queue}/peek",
        {"GET": Operation(peeking.peek, (peeking.STATE, peeking.COUNT, peeking.AFTER))},
    ),
    Route(
        "/{queue}/keys/{key}",
        {
            "GET": Operation(keys.read, headers=_RANGED),
            "HEAD": Operation(keys.read),
            "DELETE": Operation(keys.delete, headers=_MATCHED),
        },
    ),
    Route(
        "/{queue}/settings",
        {
            "GET": Operation(settings.read),
            "HEAD": Operation(settings.read),
            "PATCH": Operation(settings.change, headers=_MATCHED),
        },
    ),
    Route(
        "/{queue}/schedules/{schedule}",
        {
            "PUT": Operation(schedules.put, schedules.PUT_PARAMETERS),
            "GET": Operation(schedules.read),
            "HEAD": Operation(schedules.read),
            "DELETE": Operation(schedules.delete),
        },
    ),
    Route("/{queue}/schedules", {"GET": Operation(schedules.read_all)}),
    Route("/-/livez", {"GET": Operation(health.livez), "HEAD": Operation(health.livez)}),
    Route("/-/readyz", {"GET": Operation(health.readyz), "HEAD": Operation(health.readyz)}),
    Route("/-/openapi.json", {"GET": _OPENAPI, "HEAD": _OPENAPI}),
]
