"""What responses have in common: JSON of one line, times, the Server header."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from aiohttp import web

from mq import __version__

SERVER: Final = f"mq/{__version__}"


def json_response(
    content: Mapping[str, object], status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """One line of JSON, for people and programs."""
    return web.Response(
        body=json.dumps(content).encode() + b"\n",
        status=status,
        headers=headers,
        content_type="application/json",
    )


def rfc3339(ms: int) -> str:
    """Milliseconds since the epoch in UTC, such as 2026-01-31T23:59:59.999Z."""
    seconds, millis = divmod(ms, 1000)
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"
