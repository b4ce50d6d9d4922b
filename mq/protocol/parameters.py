"""Parsers of query parameters and headers. Pure.

Each raises BadParameter, which names the parameter and what it must be.
"""

import math
import re
from collections.abc import Iterable
from typing import Final, Protocol
from urllib.parse import unquote

from mq.model.clock import parse_rfc3339
from mq.model.errors import BadName, BadParameter, MessageNotFound
from mq.model.limits import KEY_WRITTEN_BYTES_MAX, PUBLISHED_MS_MAX
from mq.model.names import Key, MessageId

# Many digits, so that too large a number is reported by the bound that it breaks.
_SECONDS: Final = re.compile(r"[0-9]{1,300}(?:\.[0-9]{1,3})?")
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_KEY_EXPECTED: Final = (
    f"text of 1 to {KEY_WRITTEN_BYTES_MAX} bytes as written in a name, where letters, digits, _ "
    "and - count one and every other byte of UTF-8 counts three"
)


class Query(Protocol):
    def getall(self, key: str, default: list[str]) -> list[str]:
        """All values of a parameter, in their order."""


class Fields(Protocol):
    """A request's headers, whose names are found in any case."""

    def getall(self, key: str, default: list[str]) -> list[str]:
        """All values of a header, in their order."""

    def items(self) -> Iterable[tuple[str, str]]: ...


def first(headers: Fields, name: str) -> str | None:
    """The first value of a header; None without one."""
    return next(iter(headers.getall(name, [])), None)


def check_utf8(raw_query: str) -> None:
    """Raises BadParameter for a value that is not percent-encoded UTF-8, in which parsers of
    queries replace characters.
    """
    for pair in raw_query.split("&"):
        name, _, value = pair.partition("=")
        try:
            unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise BadParameter(unquote(name), "percent-encoded UTF-8") from None


def one(query: Query, parameter: str) -> str | None:
    """The parameter's value; None if left out. Raises BadParameter for a repeated one."""
    values = query.getall(parameter, [])
    if len(values) > 1:
        raise BadParameter(parameter, "given once")
    return values[0] if values else None


def whole(query: Query, parameter: str, least: int, most: int) -> int | None:
    """A whole number within these bounds."""
    text = one(query, parameter)
    if text is None:
        return None
    if _WHOLE.fullmatch(text) is None or not least <= int(text) <= most:
        raise BadParameter(parameter, f"a whole number from {least} to {most}")
    return int(text)


def seconds(query: Query, parameter: str, least: float, most: float = math.inf) -> float | None:
    """Seconds within these bounds, with at most three decimals."""
    text = one(query, parameter)
    if text is None:
        return None
    if _SECONDS.fullmatch(text) is None or not least <= float(text) <= most:
        upper = "" if math.isinf(most) else f" to {most:.15g}"
        raise BadParameter(
            parameter, f"a number of seconds from {least:g}{upper}, with at most three decimals"
        )
    return float(text)


def time_ms(query: Query, parameter: str) -> int | None:
    """An RFC 3339 time in milliseconds since the epoch; finer parts are dropped."""
    text = one(query, parameter)
    if text is None:
        return None
    try:
        # A plus in a query is a space; behind the date a plus is meant.
        found = parse_rfc3339(text[:11] + text[11:].replace(" ", "+"))
    except ValueError:
        raise BadParameter(parameter, "a time such as 2026-01-31T23:59:59Z") from None
    if found > PUBLISHED_MS_MAX:
        raise BadParameter(parameter, "a time before the year 10000")
    return found


def message_id(text: str) -> MessageId:
    """The id of a message, from a URL or a body. Raises BadName; MessageNotFound for a pack's, and
    for a place that its pack does not have.
    """
    found = MessageId.parse(text)
    if (found.items or found.pack_size) and not found.is_possible:
        raise MessageNotFound(text)
    return found


def key(text: str | None, parameter: str) -> Key | None:
    """A lookup or idempotency key of a new message, without control characters."""
    if text is not None and any(each < " " or each == "\x7f" for each in text):
        raise BadParameter(parameter, "text without control characters")
    return None if text is None else parsed_key(text, parameter)


def parsed_key(text: str, parameter: str) -> Key:
    """The key of an existing message."""
    try:
        return Key.parse(text)
    except BadName as error:
        raise BadParameter(parameter, f"{_KEY_EXPECTED}; {error.expected}") from None
