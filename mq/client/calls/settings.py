"""Calls that read and change a queue's settings."""

from collections.abc import Mapping
from typing import Any, Final

from mq.client.calls.call import Again, Call
from mq.client.transport import Answer, Request
from mq.client.values import Settings
from mq.client.wire import reading, writing
from mq.client.wire.reading import Members

_OK: Final = 200
_PATCH: Final = (("Content-Type", "application/merge-patch+json"),)


def read(queue: str) -> Call[Settings]:
    """What is effective."""
    return Call(Request("GET", writing.path(queue, "settings")), _settings)


def change(queue: str, changes: Mapping[str, Any], if_match: str | None) -> Call[Settings]:
    """Sets these, None for a default. With `if_match` a repeat is refused for its own deed."""
    headers = _PATCH if if_match is None else (*_PATCH, ("If-Match", if_match))
    body = writing.json_body(dict(changes))
    again = Again.SAFE if if_match is None else Again.UNDONE
    path = writing.path(queue, "settings")
    return Call(Request("PATCH", path, (), headers, body), _settings, again)


def _settings(answer: Answer) -> Settings:
    said = Members.of(reading.checked(answer, _OK))
    return Settings(said.said, answer.header("ETag") or "")
