"""How requests are written and how answers are read. Pure.

`request_to` takes a request's method, path, parameters, media type and the statuses of its answers
from the endpoint's declaration (`mq.protocol.endpoints`). `Members`, `rows_in` and `single_row`
read answers. They raise NotMq for an answer that mq does not send, and ignore members that they do
not know: a newer mq may send more.
"""

import base64
import binascii
import functools
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeAlias, TypeVar, get_type_hints
from urllib.parse import quote

from multidict import CIMultiDict

from mq.client.errors import NotMq, Problem, problem_of
from mq.client.options import SECONDS_MAX
from mq.client.transport import Answer, BodyStream, Pairs, Request
from mq.client.values import Fired
from mq.model.clock import parse_rfc3339, rfc3339
from mq.model.errors import BadName, BadParameter, HeadersTooLarge, suggestion
from mq.model.headers import FIRED_BY, TAGS, is_kept_name, kept, tags_in
from mq.model.names import CONTENT_TYPE_DEFAULT, MessageId
from mq.protocol.conditions import IF_MATCH, etag
from mq.protocol.endpoints import ENDPOINTS
from mq.protocol.envelopes import media_type_of
from mq.protocol.query import Parameter, Seconds, Time

V = TypeVar("V")

JSON: Final = "application/json"
TEXT: Final = "text/plain"
_CONTENT_TYPE: Final = "content-type"
_PROBLEM_TYPE: Final = "application/problem+json"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)
_SHOWN_BYTES_MAX: Final = 1000
_NOT_IN_VALUES: Final = re.compile(r"[\r\n\0]")
_NOT_IN_NAMES: Final = re.compile(r"[^!#$%&'*+.^_`|~0-9A-Za-z-]")
_KEPT: Final = (
    *("ce-*", "x-attribute-*", "traceparent", "tracestate"),
    *("content-encoding", "content-type"),
)
_FIRED: Final = re.compile(r'name="([^"]*)", due="([^"]*)", number=(\d{1,18})')
_ENDPOINTS: Final = {each.name: each for each in ENDPOINTS}
_SEGMENTS: Final = {each.name: each.path.split("/") for each in ENDPOINTS}
_EXPECTED: Final = {each.name: tuple(of.status for of in each.answers) for each in ENDPOINTS}

Given: TypeAlias = tuple[Parameter, object]
"""A query parameter and its value; None leaves it out."""


# Requests.


def request_to(
    endpoint_name: str,
    *in_path: str,
    query: Iterable[Given] = (),
    headers: Pairs = (),
    body: bytes | BodyStream | Mapping[str, object] = b"",
    wait_s: float = 0.0,
) -> Request:
    """A request to an endpoint, with the values of its path's parameters in order. A mapping is a
    body of JSON. Raises TypeError and ValueError for a value that cannot be written.
    """
    endpoint = _ENDPOINTS[endpoint_name]
    values = iter(in_path)
    path = "/".join(
        quote(next(values), safe="") if segment.startswith("{") else segment
        for segment in _SEGMENTS[endpoint_name]
    )
    if isinstance(body, Mapping):
        headers = (("Content-Type", next(iter(endpoint.body))), *headers)
        body = json_body(body)
    written = tuple(
        (each.name, _written(each, value)) for each, value in query if value is not None
    )
    expected = _EXPECTED[endpoint_name]
    return Request(endpoint.method, path, written, headers, body, wait_s, expected)


def _written(parameter: Parameter, value: Any) -> str:
    if isinstance(parameter, Time):
        return time_text(value)
    if isinstance(parameter, Seconds):
        return seconds_text(value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str) or not isinstance(value, Iterable):
        return str(value)
    return ",".join(value)


def json_value(parameter: Parameter, value: Any) -> object:
    """A parameter's value as a row of JSON has it. Raises as `request_to` does."""
    if isinstance(parameter, Time):
        return _written(parameter, value)
    return round(value, 3) if isinstance(parameter, Seconds) else value


def seconds_text(value: float) -> str:
    """Seconds with at most three decimals."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def time_text(value: datetime | str) -> str:
    """A time, or its text in RFC 3339, in UTC, to the millisecond. Raises TypeError for another
    type, ValueError without a time zone and for another text.
    """
    if isinstance(value, str):
        try:
            return rfc3339(parse_rfc3339(value))
        except ValueError:
            raise ValueError(
                f"a time as text must be RFC 3339 with a zone, such as 2026-12-24T18:00:00Z or "
                f"2026-12-24T18:00:00+01:00, not {value!r}"
            ) from None
    if not isinstance(value, datetime):
        raise TypeError(
            f"a time must be a datetime, such as datetime.now(UTC), or a text, not {value!r}"
        )
    if value.tzinfo is None:
        raise ValueError(f"a time must have a time zone, such as datetime.now(UTC): {value!r}")
    # Whole numbers: seconds as a float are inexact.
    return rfc3339((value - _EPOCH) // timedelta(milliseconds=1))


def if_match(receives: int | None) -> Pairs:
    """The header that limits a request to one delivery; none for None."""
    return () if receives is None else ((IF_MATCH.name, etag(receives)),)


def json_body(value: Any) -> bytes:
    """A value as JSON, in UTF-8, without spaces. Raises TypeError, ValueError."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def message_headers(
    content_type: str | None, given: Mapping[str, str] | None, default: str | None = None
) -> Pairs:
    """A message's headers, the Content-Type first: `content_type`, else the one in `given`, else
    `default`. Raises ValueError for a malformed header, for one that messages do not keep, and for
    more than they keep; TypeError for a value that is no text.
    """
    others = list((given or {}).items())
    for name, value in others:
        if not isinstance(name, str) or not isinstance(value, str):
            raise TypeError(f"a header must be text, not {name!r}: {value!r}; convert it by str()")
    types = [value for name, value in others if name.lower() == _CONTENT_TYPE]
    kind = content_type or (types[0] if types else default)
    found = [] if kind is None else [("Content-Type", kind)]
    found += [pair for pair in others if pair[0].lower() != _CONTENT_TYPE]
    for name, value in found:
        if not name or _NOT_IN_VALUES.search(value) or _NOT_IN_NAMES.search(name):
            raise ValueError(
                f"no header can be {name!r}: {value!r}; its name must have letters, digits and - "
                "alone, and its value no line end"
            )
        if name.lower() != _CONTENT_TYPE and not is_kept_name(name.lower()):
            raise ValueError(
                f"messages do not keep the header {name!r}{suggestion(name.lower(), _KEPT)}: they "
                f"keep {', '.join(_KEPT)}"
            )
    _check_kept(tuple(found))
    return tuple(found)


def _check_kept(headers: Pairs) -> None:
    """Raises ValueError for headers that mq would refuse."""
    try:
        media_type_of(CIMultiDict(headers))
        kept(headers)
    except BadParameter as error:
        raise ValueError(f"a message's headers must be {error.expected}: {headers!r}") from None
    except HeadersTooLarge as error:
        raise ValueError(
            f"a message keeps at most {error.headers_max} headers of {error.bytes_max} bytes, "
            f"not these {len(headers)}"
        ) from None


# Answers.


def checked(answer: Answer, expected: tuple[int, ...]) -> Answer:
    """The answer, where its status is expected. Raises its Problem, or NotMq."""
    if answer.status in expected:
        return answer
    raise refusal(answer)


def refusal(answer: Answer) -> Problem | NotMq:
    """The error of an answer whose status is not expected."""
    kind = (answer.header("Content-Type") or "").partition(";")[0].strip().lower()
    if kind == _PROBLEM_TYPE:
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            return not_mq(answer)
        if isinstance(found, dict):
            after_s = retry_after_s(answer.header("Retry-After"), answer.header("Date"))
            return problem_of({"status": answer.status, **found}, after_s)
    return not_mq(answer)


def not_mq(answer: Answer, why: str = "is not mq's") -> NotMq:
    """The error of an answer that mq does not send, with the beginning of its body."""
    shown = answer.body[:_SHOWN_BYTES_MAX].decode("utf-8", "replace").strip()
    return NotMq(answer.status, shown, why)


def retry_after_s(value: str | None, date: str | None = None) -> float | None:
    """A Retry-After in seconds: a number, or a time after the answer's Date. None without one, and
    for a malformed one.
    """
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return min(float(text[:12]), SECONDS_MAX)
    then, now = _http_date(text), _http_date(date or "")
    if then is None or now is None:
        return None
    return min(max((then - now).total_seconds(), 0.0), SECONDS_MAX)


def _http_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text.strip())
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found


def time_of(text: str) -> datetime:
    """A time from RFC 3339. Raises ValueError."""
    try:
        return _EPOCH + timedelta(milliseconds=parse_rfc3339(text))
    except OverflowError:
        # After the year 9999, as a delay of thousands of years is.
        return _LATEST


class Members:
    """A JSON object of an answer, whose members are read by name and type. Each method raises NotMq
    for a member of another type, and where one is missing that is not optional.
    """

    __slots__ = ("_answer", "raw")

    def __init__(self, answer: Answer, found: object) -> None:
        self._answer = answer
        if not isinstance(found, dict):
            raise self._strange("object")
        self.raw: Mapping[str, Any] = found

    @classmethod
    def of(cls, answer: Answer) -> "Members":
        try:
            found = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise not_mq(answer, "is not JSON") from None
        return cls(answer, found)

    def text(self, name: str) -> str:
        value = self.raw.get(name)
        if not isinstance(value, str):
            raise self._strange(name)
        return value

    def text_or_none(self, name: str) -> str | None:
        return None if self.raw.get(name) is None else self.text(name)

    def whole(self, name: str) -> int:
        value = self.raw.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._strange(name)
        return value

    def whole_or_none(self, name: str) -> int | None:
        return None if self.raw.get(name) is None else self.whole(name)

    def number_or_none(self, name: str) -> float | None:
        value = self.raw.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._strange(name)
        return float(value)

    def number(self, name: str) -> float:
        value = self.number_or_none(name)
        if value is None:
            raise self._strange(name)
        return value

    def truth(self, name: str) -> bool:
        value = self.raw.get(name)
        if not isinstance(value, bool):
            raise self._strange(name)
        return value

    def time(self, name: str) -> datetime:
        try:
            return time_of(self.text(name))
        except ValueError:
            raise self._strange(name) from None

    def time_or_none(self, name: str) -> datetime | None:
        return None if self.raw.get(name) is None else self.time(name)

    def inner(self, name: str) -> "Members":
        return Members(self._answer, self.raw.get(name))

    def each(self, name: str) -> "list[Members]":
        value = self.raw.get(name)
        if not isinstance(value, list):
            raise self._strange(name)
        return [Members(self._answer, one) for one in value]

    def listed_texts(self, name: str) -> tuple[str, ...]:
        """A list of strings, which may be left out."""
        found = self.raw.get(name, [])
        if not isinstance(found, list) or not all(isinstance(each, str) for each in found):
            raise self._strange(name)
        return tuple(found)

    def texts(self, name: str) -> dict[str, str]:
        found = self.inner(name).raw
        if not all(isinstance(value, str) for value in found.values()):
            raise self._strange(name)
        return dict(found)

    def wholes(self, name: str) -> dict[str, int]:
        inner = self.inner(name)
        return {each: inner.whole(each) for each in inner.raw}

    def times(self, name: str) -> dict[str, datetime]:
        inner = self.inner(name)
        return {each: inner.time(each) for each in inner.raw}

    def object(self, name: str) -> Mapping[str, Any]:
        return self.inner(name).raw

    def problem(self, name: str) -> Problem | None:
        found = self.raw.get(name)
        return problem_of(found) if isinstance(found, dict) else None

    def body(self) -> bytes:
        """A row's body, from `body` or `body_base64`; empty without either."""
        text = self.text_or_none("body")
        if text is not None:
            try:
                return text.encode()
            except UnicodeEncodeError:
                raise not_mq(self._answer, "has a body that is not UTF-8") from None
        encoded = self.text_or_none("body_base64")
        if encoded is None:
            return b""
        try:
            return base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise not_mq(self._answer, "has a body that is not base64") from None

    def row(self) -> "Row":
        sidelined = self.inner("sidelined") if "sidelined" in self.raw else None
        headers = self.texts("headers")
        fired, tags = headers.pop(FIRED_BY.lower(), None), headers.pop(TAGS.lower(), None)
        return Row(
            id=self.text("id"),
            receives=self.whole("receives"),
            published=self.time("published"),
            due=self.time("due"),
            headers=headers,
            body=self.body(),
            sidelined=None if sidelined is None else sidelined.text("reason"),
            sidelined_at=None if sidelined is None else sidelined.time_or_none("at"),
            schedule=_fired(fired),
            attempts=self.whole_or_none("attempts"),
            group=self.text("group") if "group" in self.raw else None,
            tags=_tags(tags),
            reason=self.text_or_none("reason"),
        )

    def value(self, kind: type[V], **others: Any) -> V:
        """A dataclass: each field is the member of its name and type, or one of `others`."""
        hints = {name: hint for name, hint in _hints(kind).items() if name not in others}
        return kind(**{name: _READERS[hint](self, name) for name, hint in hints.items()}, **others)

    def _strange(self, what: str) -> NotMq:
        return not_mq(self._answer, f"has no valid {what}")


_hints: Final[Callable[[Any], dict[str, Any]]] = functools.cache(get_type_hints)
_READERS: Final[Mapping[Any, Callable[[Members, str], Any]]] = {
    bool: Members.truth,
    int: Members.whole,
    int | None: Members.whole_or_none,
    float: Members.number,
    float | None: Members.number_or_none,
    str: Members.text,
    str | None: Members.text_or_none,
    datetime: Members.time,
    datetime | None: Members.time_or_none,
    Mapping[str, Any]: Members.object,
    Mapping[str, int]: Members.wholes,
    Mapping[str, str]: Members.texts,
    Mapping[str, datetime]: Members.times,
}


# Messages in answers.


@dataclass(frozen=True, slots=True)
class Row:
    """A message in an answer, or in a frame, whose body comes in the next one."""

    id: str
    receives: int
    published: datetime
    due: datetime
    headers: Mapping[str, str]
    body: bytes = b""
    sidelined: str | None = None
    sidelined_at: datetime | None = None
    schedule: Fired | None = None
    attempts: int | None = None
    group: str | None = None
    tags: tuple[str, ...] = ()
    reason: str | None = None


def rows_in(answer: Answer) -> Iterator[Members]:
    """The lines of an answer of NDJSON. Raises NotMq; also without a last line end, since such an
    answer is cut short.
    """
    if answer.body and not answer.body.endswith(b"\n"):
        raise not_mq(answer, "ends in the middle of a row")
    for line in answer.body.split(b"\n")[:-1]:
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            raise not_mq(answer, "has a row that is not JSON") from None
        yield Members(answer, found)


def single_row(answer: Answer) -> Row:
    """The message whose body is the answer's, as of a fetch without `count`. Raises NotMq."""
    try:
        return Row(
            id=_header(answer, "X-Message-Id"),
            receives=int(_header(answer, "X-Message-Receives")),
            published=time_of(_header(answer, "X-Message-Published")),
            due=time_of(_header(answer, "X-Message-Due")),
            headers=kept_headers(answer.headers),
            body=answer.body,
            sidelined=answer.header("X-Message-Sidelined"),
            schedule=_fired(answer.header(FIRED_BY)),
            attempts=_attempts(answer.header("X-Message-Attempts")),
            group=answer.header("X-Message-Group"),
            tags=_tags(answer.header(TAGS)),
            reason=answer.header("X-Message-Reason"),
        )
    except ValueError:
        raise not_mq(answer, "has malformed headers of a message") from None


def _attempts(said: str | None) -> int | None:
    return None if said is None else int(said)


def _fired(said: str | None) -> Fired | None:
    """The firing that a message's header names; None without one, and for a newer mq's."""
    found = _FIRED.fullmatch(said or "")
    try:
        return found and Fired(found[1], time_of(found[2]), int(found[3]))
    except ValueError:
        return None


def _tags(said: str | None) -> tuple[str, ...]:
    return tuple(tag.text for tag in tags_in(((TAGS, said or ""),)))


def _header(answer: Answer, name: str) -> str:
    value = answer.header(name)
    if value is None:
        raise not_mq(answer, f"has no header {name}")
    return value


def kept_headers(headers: Pairs) -> dict[str, str]:
    """The headers of an answer that belong to the message, by names in lower case, as rows have
    them: the Content-Type first; several values of a name are joined by commas.
    """
    found: dict[str, list[str]] = {_CONTENT_TYPE: []}
    for name, value in headers:
        lower = name.lower()
        if lower == _CONTENT_TYPE or is_kept_name(lower):
            found.setdefault(lower, []).append(value)
    if not found[_CONTENT_TYPE]:
        found[_CONTENT_TYPE] = [CONTENT_TYPE_DEFAULT]
    return {name: ", ".join(values) for name, values in found.items()}


def priority_and_key(message_id: str) -> tuple[int, str | None]:
    """The priority and the lookup key in an id; 0 and None for an id of a newer mq."""
    try:
        parsed = MessageId.parse(message_id)
    except BadName:
        return 0, None
    return parsed.priority, None if parsed.key is None else parsed.key.text
