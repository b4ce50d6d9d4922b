"""The pipeline's names: what is written is read back, and what is none is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import BadName
from mq.model.names import ConsumerName, Key
from mq.store.format.layout import Layout
from mq.store.format.pipeline import (
    Attempt,
    JournalFile,
    LeaseFile,
    LeaseName,
    acknowledged_folder,
    is_acknowledged,
    journal_path,
    lease_path,
    owner_lock,
    parse_journal_file,
    parse_lease_file,
    parse_owner_lock,
)

LAYOUT = Layout.of("/root-of-mq")
UUID = "01890a5d-ac96-774b-bcce-b302099a8057"

consumers = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,39}\Z").map(ConsumerName.parse)
leases = st.builds(LeaseName, consumers, st.integers(1, 999_999_999_999))
keys = st.text(min_size=1, max_size=10).filter(lambda text: text.isascii()).map(Key.parse)


def name(path: str) -> str:
    return path.rpartition("/")[2]


@given(leases, st.sampled_from(LeaseFile))
def test_a_name_of_a_lease_says_which_lease_and_what(lease: LeaseName, file: LeaseFile) -> None:
    assert parse_lease_file(name(lease_path(LAYOUT, lease, file))) == (lease, file)


@given(leases)
def test_an_acknowledged_lease_is_told_by_its_name(lease: LeaseName) -> None:
    assert is_acknowledged(name(acknowledged_folder(LAYOUT, lease, UUID)))


@given(consumers)
def test_an_owner_s_lock_is_no_lease(consumer: ConsumerName) -> None:
    lock = name(owner_lock(LAYOUT, consumer))
    assert parse_owner_lock(lock) == consumer
    with pytest.raises(BadName):
        parse_lease_file(lock)


@given(keys, st.sampled_from(JournalFile))
def test_a_name_of_a_journal_says_which_publish_and_what(key: Key, file: JournalFile) -> None:
    assert parse_journal_file(name(journal_path(LAYOUT, key, file))) == (key, file)


@pytest.mark.parametrize("text", ["c", "c.", "c.0", "c.01", "c.x", ".1", "a.b.1", "c.1.2", "-c.1"])
def test_what_is_no_lease(text: str) -> None:
    with pytest.raises(BadName):
        parse_lease_file(text)


@pytest.mark.parametrize(
    "text", ["c.1.l", "q.l", f"c:{UUID}.l", f"c.1:{UUID}", f"c.1:{UUID}.d", "c.1:x.l"]
)
def test_what_is_no_acknowledged_lease(text: str) -> None:
    assert not is_acknowledged(text)


@pytest.mark.parametrize("text", ["1", "1-", "-1", "01-1", "1-1-1", "a-1"])
def test_what_is_no_attempt(text: str) -> None:
    with pytest.raises(BadName):
        Attempt.parse(text)
    assert Attempt.parse("3-17") == Attempt(3, 17)
