"""Messages as lines of JSON (NDJSON): a batch that was fetched, a peek, what a split published."""

import base64
import json
from collections.abc import Mapping
from typing import Final

MEDIA_TYPE: Final = "application/x-ndjson"


def row(members: Mapping[str, object], body: bytes | None = None) -> bytes:
    """One line: the members, then the body as `body` where it is UTF-8, else as `body_base64`."""
    content = dict(members)
    if body is not None:
        try:
            content["body"] = body.decode()
        except UnicodeDecodeError:
            content["body_base64"] = base64.b64encode(body).decode("ascii")
    return json.dumps(content, ensure_ascii=False).encode() + b"\n"
