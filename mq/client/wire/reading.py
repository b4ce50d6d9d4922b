"""How an answer is read: its problem, its JSON, and members that must be there. Pure.

Each raises NotMq for what mq would not have said. Members that nobody knows are passed over: what
answers carry may come to have more.
"""

import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from mq.client.errors import NotMq, Problem, problem_of
from mq.client.limits import SECONDS_MAX
from mq.client.transport import Answer
from mq.model.clock import parse_rfc3339

_PROBLEM_TYPE: Final = "application/problem+json"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LATEST: Final = datetime.max.replace(tzinfo=UTC)


def checked(answer: Answer, *statuses: int) -> Answer:
    """The answer, which has one of these statuses. Raises the Problem that it says, or NotMq."""
    if answer.status in statuses:
        return answer
    raise refusal(answer)


def refusal(answer: Answer) -> Problem | NotMq:
    """What an answer says that is none of those that were hoped for."""
    kind = (answer.header("Content-Type") or "").partition(";")[0].strip().lower()
    if kind == _PROBLEM_TYPE:
        try:
            said = json.loads(answer.body)
        except (ValueError, RecursionError):
            return not_mq(answer)
        if isinstance(said, dict):
            after_s = retry_after_s(answer.header("Retry-After"), answer.header("Date"))
            return problem_of({"status": answer.status, **said}, after_s)
    return not_mq(answer)


def not_mq(answer: Answer, why: str = "is not mq's") -> NotMq:
    """That an answer is not mq's, with the beginning of what came."""
    return NotMq(answer.status, answer.body[:1000].decode("utf-8", "replace").strip(), why)


def retry_after_s(value: str | None, date: str | None = None) -> float | None:
    """Seconds that a Retry-After says: so many, or from the answer's Date to a moment. None where
    it says nothing that can be understood.
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


def time(text: str) -> datetime:
    """A moment as mq writes it. Raises ValueError."""
    # What is later than Python can say, as a delay of a thousand years may be, is cut.
    try:
        return _EPOCH + timedelta(milliseconds=parse_rfc3339(text))
    except OverflowError:
        return _LATEST


class Members:
    """A JSON object of an answer, whose members are asked for by name and type."""

    __slots__ = ("_answer", "said")

    def __init__(self, answer: Answer, said: object) -> None:
        """Raises NotMq where it is no object."""
        self._answer = answer
        if not isinstance(said, dict):
            raise self._strange("an object")
        self.said: Mapping[str, Any] = said

    @classmethod
    def of(cls, answer: Answer) -> "Members":
        """Those of an answer's body. Raises NotMq."""
        try:
            said = json.loads(answer.body)
        except (ValueError, RecursionError):
            raise not_mq(answer, "is no JSON") from None
        return cls(answer, said)

    def text(self, name: str) -> str:
        """A text that is there."""
        value = self.said.get(name)
        if not isinstance(value, str):
            raise self._strange(name)
        return value

    def text_or_none(self, name: str) -> str | None:
        """A text, or None where it is null or left out."""
        return None if self.said.get(name) is None else self.text(name)

    def whole(self, name: str) -> int:
        """A whole number that is there."""
        value = self.said.get(name)
        if not isinstance(value, int) or isinstance(value, bool):
            raise self._strange(name)
        return value

    def whole_or_none(self, name: str) -> int | None:
        """A whole number, or None where it is null or left out."""
        return None if self.said.get(name) is None else self.whole(name)

    def number_or_none(self, name: str) -> float | None:
        """A number, or None where it is null or left out."""
        value = self.said.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self._strange(name)
        return float(value)

    def truth(self, name: str) -> bool:
        """True or false, which is there."""
        value = self.said.get(name)
        if not isinstance(value, bool):
            raise self._strange(name)
        return value

    def time(self, name: str) -> datetime:
        """A moment that is there."""
        try:
            return time(self.text(name))
        except ValueError:
            raise self._strange(name) from None

    def time_or_none(self, name: str) -> datetime | None:
        """A moment, or None where it is null or left out."""
        return None if self.said.get(name) is None else self.time(name)

    def inner(self, name: str) -> "Members":
        """An object that is there."""
        return Members(self._answer, self.said.get(name))

    def each(self, name: str) -> "list[Members]":
        """The objects of a list that is there."""
        value = self.said.get(name)
        if not isinstance(value, list):
            raise self._strange(name)
        return [Members(self._answer, one) for one in value]

    def texts(self, name: str) -> dict[str, str]:
        """An object of texts that is there."""
        found = self.inner(name).said
        if not all(isinstance(value, str) for value in found.values()):
            raise self._strange(name)
        return dict(found)

    def wholes(self, name: str) -> dict[str, int]:
        """An object of whole numbers that is there."""
        inner = self.inner(name)
        return {each: inner.whole(each) for each in inner.said}

    def problem(self, name: str) -> Problem | None:
        """A problem, or None where it is left out."""
        said = self.said.get(name)
        return problem_of(said) if isinstance(said, dict) else None

    def _strange(self, what: str) -> NotMq:
        return not_mq(self._answer, f"has no {what} as mq would say it")
