"""What a leader tells a member by ZooKeeper, and what it writes into members/leader."""

import hashlib
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.coordination.assigning import NO_DEAL, Deal
from mq.coordination.telling import (
    NODE_BYTES_MAX,
    NODE_PLAIN_BYTES_MAX,
    NOTHING,
    Told,
    parse_deal,
    parse_told,
    print_deal,
    print_told,
)

QUEUES = st.frozensets(st.from_regex(r"[a-z][a-z0-9.]{0,9}", fullmatch=True), max_size=20)
MEMBERS = st.sampled_from(["a", "host-1.example-77-f00d", "b"])


@given(MEMBERS, QUEUES)
def test_what_was_told_is_heard(leader: str, queues: frozenset[str]) -> None:
    data, told = print_told(leader, queues)
    assert told == queues
    assert parse_told(data) == Told(leader, queues)


@given(MEMBERS, st.dictionaries(st.from_regex(r"[a-z]{1,9}", fullmatch=True), MEMBERS))
def test_a_deal_is_read_as_it_was_written(leader: str, assigned: dict[str, str]) -> None:
    assert parse_deal(print_deal(Deal(leader, assigned))) == Deal(leader, assigned)


@given(st.binary(max_size=60))
def test_what_is_neither_is_nothing(data: bytes) -> None:
    assert parse_told(data) == NOTHING
    assert parse_told(zlib.compress(data)) == NOTHING
    assert parse_deal(data) == NO_DEAL


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        b'{"version": 2, "leader": "a", "queues": [], "assigned": {}}',
        b'{"version": 1, "leader": "a"}',
        b'{"version": 1, "leader": "../a", "assigned": {}, "queues": 7}',
        b'{"version": 1, "leader": "a", "assigned": [], "queues": null}',
        b'{"version": 1, "leader": "a", "assigned": {"b/c": ["x"]}, "queues": 1.5}',
    ],
)
def test_another_version_and_what_is_broken_are_nothing(text: bytes) -> None:
    assert parse_told(text) == NOTHING
    assert parse_deal(text) == NO_DEAL


def test_a_large_assignment_is_compressed_and_fits() -> None:
    queues = {f"a-queue-with-a-rather-long-name-{at}" for at in range(20_000)}
    data, told = print_told("a", queues)
    assert told == queues
    assert data[:1] != b"{"
    assert NODE_PLAIN_BYTES_MAX < len(data) <= NODE_BYTES_MAX
    assert parse_told(data) == Told("a", frozenset(queues))


@pytest.mark.certificate
def test_of_what_finds_no_room_the_rest_stays_the_leaders() -> None:
    queues = {hashlib.sha256(b"%d" % at).hexdigest()[:50] for at in range(60_000)}
    data, told = print_told("a", queues)
    assert len(data) <= NODE_BYTES_MAX
    assert told < queues
    assert parse_told(data) == Told("a", told)
