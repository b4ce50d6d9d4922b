"""What members tell of themselves, and what follows from all of it."""

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.limits import PUBLISHED_MS_MAX
from mq.model.members import TOLD_GONE_S, TOLD_QUEUES_MAX, Acted, Doing, Member, leader_of, owner_of
from mq.model.names import QUEUE_PATTERN, QueueName
from mq.store.members.files import TOLD_BYTES_MAX

NOW_MS = 1_700_000_000_000
ORDERS, PAYMENTS = QueueName.parse("orders"), QueueName.parse("payments")

counts = st.integers(0, 2**53)
times = st.integers(0, PUBLISHED_MS_MAX)
queues = st.from_regex(QUEUE_PATTERN, fullmatch=True).map(QueueName.parse)
acted = st.builds(Acted, counts, counts, counts, st.none() | times, st.none() | times)
doings = st.builds(
    Doing,
    st.text(max_size=20),
    st.none() | st.text(max_size=20),
    st.booleans(),
    st.lists(queues, max_size=5).map(tuple),
    st.dictionaries(st.text(max_size=20), acted, max_size=3),
    st.dictionaries(st.text(max_size=20), counts, max_size=3),
)
members = st.builds(
    Member, st.text(max_size=20), st.text(max_size=20), counts, times, times, doings, counts
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner),
    max_leaves=10,
)


def written(member: Member) -> bytes:
    return json.dumps(member.as_json()).encode()


def member(name: str, told_ms: int = NOW_MS, **doing: object) -> Member:
    queues = doing.get("queues", ())
    assert isinstance(queues, tuple)
    said = Doing("file", **doing)  # type: ignore[arg-type]
    return Member(name, "host", 7, NOW_MS - 60_000, told_ms, said, len(queues))


@given(members)
def test_what_is_told_is_what_is_read(member: Member) -> None:
    assert Member.parse(written(member)) == member


@given(st.binary())
def test_bytes_of_anything_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Member.parse(text)


@given(members, st.data())
def test_a_damaged_file_is_read_or_refused(member: Member, data: st.DataObject) -> None:
    said = member.as_json()
    name = data.draw(st.sampled_from(sorted(said)))
    if data.draw(st.booleans()):
        del said[name]
    else:
        said[name] = data.draw(json_values)
    try:
        found = Member.parse(json.dumps(said).encode())
    except ValueError:
        return
    assert Member.parse(written(found)) == found


def test_a_member_of_a_version_that_is_not_known_is_refused() -> None:
    said = {**member("a").as_json(), "version": 2}
    with pytest.raises(ValueError, match="another version"):
        Member.parse(json.dumps(said).encode())


def test_a_member_of_very_many_queues_names_some_and_counts_all() -> None:
    many = tuple(QueueName.parse(f"{n:055d}_SIDELINE") for n in range(TOLD_QUEUES_MAX + 5))
    text = written(member("a", queues=many))
    assert len(text) < TOLD_BYTES_MAX
    found = Member.parse(text)
    assert found.queues_count == TOLD_QUEUES_MAX + 5
    assert found.doing.queues == many[:TOLD_QUEUES_MAX]


@pytest.mark.parametrize(
    ("age_s", "is_gone"),
    [(-60.0, False), (0.0, False), (TOLD_GONE_S, False), (TOLD_GONE_S + 0.001, True)],
)
def test_a_member_is_gone_after_some_time_of_nothing(age_s: float, is_gone: bool) -> None:
    assert member("a", NOW_MS - round(age_s * 1000)).is_gone(NOW_MS) is is_gone


A_LEADS = member("a", leader="a", queues=(ORDERS,))
B_FOLLOWS = member("b", leader="a", queues=(PAYMENTS,))
LONG_AGO_MS = NOW_MS - round(TOLD_GONE_S * 2000)


def at(found: Member, told_ms: int) -> Member:
    return replace(found, told_ms=told_ms)


@pytest.mark.parametrize(
    ("found", "leader"),
    [
        pytest.param((), None, id="nobody"),
        pytest.param((A_LEADS, B_FOLLOWS), "a", id="one-leads"),
        pytest.param((B_FOLLOWS,), None, id="only-others-say-so"),
        pytest.param((at(A_LEADS, LONG_AGO_MS), B_FOLLOWS), None, id="the-leader-is-gone"),
        pytest.param(
            (at(A_LEADS, NOW_MS - 3000), member("b", NOW_MS - 1000, leader="b")),
            "b",
            id="two-say-so-in-turn",
        ),
        pytest.param((member("a", leader="a", is_connected=False),), None, id="it-lost-touch"),
    ],
)
def test_the_leader_is_who_last_said_so_and_is_there(
    found: tuple[Member, ...], leader: str | None
) -> None:
    assert leader_of(found, NOW_MS) == leader


@pytest.mark.parametrize(
    ("found", "owner"),
    [
        pytest.param((), None, id="nobody"),
        pytest.param((A_LEADS, B_FOLLOWS), "a", id="one-has-it"),
        pytest.param((B_FOLLOWS,), None, id="of-another-queue"),
        pytest.param((at(A_LEADS, LONG_AGO_MS),), None, id="who-had-it-is-gone"),
        pytest.param(
            (at(A_LEADS, NOW_MS - 3000), member("b", NOW_MS - 1000, queues=(ORDERS,))),
            "b",
            id="it-went-to-another",
        ),
        pytest.param(
            (member("a", is_connected=False, queues=(ORDERS,)),), None, id="it-lost-touch"
        ),
    ],
)
def test_a_queue_is_whose_who_last_said_so_and_is_there(
    found: tuple[Member, ...], owner: str | None
) -> None:
    assert owner_of(found, ORDERS, NOW_MS) == owner
