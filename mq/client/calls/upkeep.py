"""Calls that ask how mq itself is: alive, ready, its memory, its members, what it can."""

from collections.abc import Mapping
from typing import Any, Final

from mq.client.calls.call import Again, Call
from mq.client.transport import Answer, Request
from mq.client.values import Member, Members, Readiness, Refreshed
from mq.client.wire import reading, writing
from mq.client.wire.reading import Members as Said

_OK: Final = 200


def is_alive() -> Call[bool]:
    """Whether the daemon turns."""
    return Call(Request("GET", "/-/livez"), _is_alive, Again.NEVER)


def _is_alive(answer: Answer) -> bool:
    return Said.of(reading.checked(answer, _OK)).truth("alive")


def readiness() -> Call[Readiness]:
    """Whether it can persist now."""
    return Call(Request("GET", "/-/readyz"), _readiness, Again.NEVER)


def _readiness(answer: Answer) -> Readiness:
    said = Said.of(reading.checked(answer, _OK))
    return Readiness(
        durability=said.text("durability"),
        file_system=said.text("file_system"),
        commit=said.text("commit"),
        free_bytes=said.whole("free_bytes"),
        free_inodes=said.whole("free_inodes"),
        below_reserve=said.truth("below_reserve"),
    )


def memory() -> Call[Mapping[str, Any]]:
    """What the process that answers holds in memory."""
    return Call(Request("GET", "/-/memory"), _object)


def openapi() -> Call[Mapping[str, Any]]:
    """The interface as an OpenAPI document."""
    return Call(Request("GET", "/-/openapi.json"), _object)


def _object(answer: Answer) -> Mapping[str, Any]:
    return Said.of(reading.checked(answer, _OK)).said


def members(queue: str | None) -> Call[Members]:
    """The processes that share the upkeep; with a queue, whose that is."""

    def read(answer: Answer) -> Members:
        said = Said.of(reading.checked(answer, _OK))
        found = tuple(_member(each) for each in said.each("members"))
        assigned = None if queue is None else said.inner("assigned").text_or_none(queue)
        return Members(said.text_or_none("leader"), found, assigned)

    return Call(Request("GET", "/-/members", writing.query({"queue": queue})), read)


def _member(said: Said) -> Member:
    return Member(
        name=said.text("member"),
        host=said.text("host"),
        pid=said.whole("pid"),
        started=said.time("started"),
        told=said.time("told"),
        gone=said.truth("gone"),
        leads=said.truth("leads"),
        connected=said.truth("connected"),
        queues_count=said.inner("queues").whole("count"),
        said=said.said,
    )


def refresh() -> Call[Refreshed]:
    """Has every process look at all queues now."""
    return Call(Request("POST", "/-/refresh"), _refreshed)


def _refreshed(answer: Answer) -> Refreshed:
    said = Said.of(reading.checked(answer, _OK))
    return Refreshed(
        said.whole("queues"), said.whole("new"), said.whole("changed"), said.whole("gone")
    )
