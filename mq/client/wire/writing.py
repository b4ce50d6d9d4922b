"""How what a caller says is written into a request: paths, queries, times, bodies. Pure."""

import json
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import quote

from mq.client.transport import Pairs
from mq.model.clock import rfc3339
from mq.model.headers import is_kept_name

JSON: Final = "application/json"
TEXT: Final = "text/plain"
# Between members, and between a name and its value.
_COMMA, _COLON = ",:"
_CONTENT_TYPE: Final = "content-type"
_MS_PER_S: Final = 1000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_UNFIT: Final = re.compile(r"[\r\n\0]")
_UNFIT_NAME: Final = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]")


def path(*parts: str) -> str:
    """A path of these parts, each percent-encoded as a whole."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def query(said: Mapping[str, str | None]) -> Pairs:
    """A query with what was said, without what is None."""
    return tuple((name, value) for name, value in said.items() if value is not None)


def seconds(value: float | None) -> str | None:
    """Seconds with at most three decimals, as a query has them."""
    if value is None:
        return None
    return f"{value:.3f}".rstrip("0").rstrip(".")


def whole(value: int | None) -> str | None:
    """A whole number as a query has it."""
    return None if value is None else str(value)


def switch(value: bool | None) -> str | None:
    """True or false as a query has it."""
    return None if value is None else str(value).lower()


def time(value: datetime | None) -> str | None:
    """A moment as RFC 3339 writes it in UTC. Raises ValueError for one without a time zone: it
    would be another moment elsewhere.
    """
    if value is None:
        return None
    if not isinstance(value, datetime):
        raise TypeError(f"a time is a datetime, such as datetime.now(UTC), not {value!r}")
    if value.tzinfo is None:
        raise ValueError("a time needs a time zone, such as datetime.now(UTC)")
    # To the millisecond, downwards, in whole numbers: seconds as a float are not exact.
    passed = value - _EPOCH
    ms = (passed.days * 86_400 + passed.seconds) * _MS_PER_S + passed.microseconds // 1000
    return rfc3339(ms)


def terms(value: str | Iterable[str] | None) -> str | None:
    """A selection: its terms with commas between, or several such texts."""
    if value is None or isinstance(value, str):
        return value
    return ",".join(value)


def if_match(receives: int | None) -> Pairs:
    """The header that names a delivery; none where it is None."""
    return () if receives is None else (("If-Match", f'"{receives}"'),)


def json_body(value: Any) -> bytes:
    """A value as JSON, in UTF-8, without spaces. Raises TypeError, ValueError."""
    return json.dumps(
        value, ensure_ascii=False, allow_nan=False, separators=(_COMMA, _COLON)
    ).encode()


def quoted(value: str) -> str:
    """An idempotency key as its header has it: in quotes, so that it may have what is else a
    header's own.
    """
    return f'"{value}"'


def headers(
    content_type: str | None, given: Mapping[str, str] | None, default: str | None = None
) -> Pairs:
    """A message's headers, the Content-Type first: what is said by itself, else what stands among
    the others, else the default. Raises ValueError for what no header's line can have, and for what
    messages do not keep: it would be lost.
    """
    others = [(name, value) for name, value in (given or {}).items()]
    types = [value for name, value in others if name.lower() == _CONTENT_TYPE]
    kind = content_type or (types[0] if types else default)
    said = [] if kind is None else [("Content-Type", kind)]
    said += [pair for pair in others if pair[0].lower() != _CONTENT_TYPE]
    for name, value in said:
        if not name or _UNFIT.search(value) or _UNFIT_NAME.search(name):
            raise ValueError(f"no header: {name!r}: {value!r}")
        if name.lower() != _CONTENT_TYPE and not is_kept_name(name.lower()):
            raise ValueError(
                f"messages do not keep the header {name!r}, but ce-*, x-attribute-*, traceparent, "
                "tracestate, Content-Encoding and Content-Type"
            )
    return tuple(said)
