"""Query parameters and headers that say something, each by a parser of its own: pure.

Each raises BadParameter, which names the parameter and what it may be.
"""

import math
import re
from collections.abc import Iterable
from typing import Final, Protocol
from urllib.parse import unquote

from mq.model.clock import parse_rfc3339
from mq.model.errors import BadName, BadParameter
from mq.model.limits import KEY_WRITTEN_BYTES_MAX, PUBLISHED_MS_MAX
from mq.model.names import Key

# So many digits that what is too much is told as that, by the bound that it breaks.
_SECONDS: Final = re.compile(r"[0-9]{1,300}(?:\.[0-9]{1,3})?")
_WHOLE: Final = re.compile(r"0|[1-9][0-9]{0,17}")
_KEY_EXPECTED: Final = (
    f"text of 1 to {KEY_WRITTEN_BYTES_MAX} bytes as written in a name, where a letter, a digit, _ "
    "and - take one and each other byte of UTF-8 three"
)


class Query(Protocol):
    """A request's query."""

    def getall(self, key: str, default: list[str]) -> list[str]:
        """All values of a parameter, in their order."""


class Fields(Protocol):
    """A request's headers, whose names are found in any case."""

    def getall(self, key: str, default: list[str]) -> list[str]:
        """All values of a header, in their order."""

    def items(self) -> Iterable[tuple[str, str]]:
        """All headers, in their order."""


def first(headers: Fields, name: str) -> str | None:
    """A header's value, the first one where there are several; None: it is left out."""
    return next(iter(headers.getall(name, [])), None)


def check_utf8(raw_query: str) -> None:
    """Raises BadParameter for a value that is no percent-encoded UTF-8: what decodes a query puts
    another character in its place.
    """
    for pair in raw_query.split("&"):
        name, _, value = pair.partition("=")
        try:
            unquote(value, errors="strict")
        except UnicodeDecodeError:
            raise BadParameter(unquote(name), "UTF-8, percent-encoded") from None


def one(query: Query, parameter: str) -> str | None:
    """The parameter's value; None where it is left out. Said twice is malformed."""
    values = query.getall(parameter, [])
    if len(values) > 1:
        raise BadParameter(parameter, "one value")
    return values[0] if values else None


def whole(query: Query, parameter: str, least: int, most: int) -> int | None:
    """A whole number between these."""
    text = one(query, parameter)
    if text is None:
        return None
    if _WHOLE.fullmatch(text) is None or not least <= int(text) <= most:
        raise BadParameter(parameter, f"one whole number from {least} to {most}")
    return int(text)


def seconds(query: Query, parameter: str, least: float, most: float = math.inf) -> float | None:
    """Seconds between these, with at most three decimals."""
    text = one(query, parameter)
    if text is None:
        return None
    if _SECONDS.fullmatch(text) is None or not least <= float(text) <= most:
        upper = "" if math.isinf(most) else f" to {most:.15g}"
        raise BadParameter(parameter, f"seconds from {least:g}{upper}, with at most three decimals")
    return float(text)


def time_ms(query: Query, parameter: str) -> int | None:
    """A time as RFC 3339 writes it, in milliseconds since the epoch; finer parts are dropped."""
    text = one(query, parameter)
    if text is None:
        return None
    try:
        # A plus in a query is a space: behind the date, nobody means one.
        found = parse_rfc3339(text[:11] + text[11:].replace(" ", "+"))
    except ValueError:
        raise BadParameter(parameter, "a time such as 2026-01-31T23:59:59Z") from None
    if found > PUBLISHED_MS_MAX:
        raise BadParameter(parameter, "a time before the year 10000")
    return found


def key(text: str | None, parameter: str) -> Key | None:
    """A lookup key, or what publishes of one have in common, of what is to be new."""
    if text is not None and any(each < " " or each == "\x7f" for each in text):
        raise BadParameter(parameter, "text without control characters")
    return None if text is None else parsed_key(text, parameter)


def parsed_key(text: str, parameter: str) -> Key:
    """A key that is there."""
    try:
        return Key.parse(text)
    except BadName as error:
        raise BadParameter(parameter, f"{_KEY_EXPECTED}; {error.expected}") from None
