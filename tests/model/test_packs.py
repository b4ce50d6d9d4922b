"""Packs: contents, cutting and grouping."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.clock import SystemClock
from mq.model.errors import MessageUnreadable
from mq.model.limits import PACK_BYTES_MAX, PACK_MESSAGES_MAX
from mq.model.names import MessageId, UuidSource
from mq.model.packs import bodies_in, by_pack, contents, cut, is_whole

UUIDS = UuidSource(SystemClock())
BODIES = st.lists(st.binary(max_size=30), min_size=2, max_size=12)


def pack_of(bodies: list[bytes], head: bytes = b"") -> MessageId:
    return MessageId(UUIDS.packs(1)[0], items=len(bodies), header_bytes=len(head))


@given(BODIES, st.sampled_from([b"", b"ce-id: 7\n"]))
def test_contents_are_read_as_they_were_written(bodies: list[bytes], head: bytes) -> None:
    written = head + contents(bodies)
    assert bodies_in(written, pack_of(bodies, head)) == bodies


@given(BODIES, st.data())
def test_a_damaged_index_is_unreadable(bodies: list[bytes], data: st.DataObject) -> None:
    pack, written = pack_of(bodies), contents(bodies)
    index = written.index(b"\n") + 1
    at = data.draw(st.integers(0, index - 1))
    byte = data.draw(st.binary(max_size=2).filter(lambda found: found != written[at : at + 1]))
    with pytest.raises(MessageUnreadable):
        bodies_in(written[:at] + byte + written[at + 1 :], pack)


@given(BODIES, st.data())
def test_a_file_of_another_size_is_unreadable(bodies: list[bytes], data: st.DataObject) -> None:
    pack, written = pack_of(bodies), contents(bodies)
    end = data.draw(st.integers(0, len(written) - 1))
    for damaged in (written[:end], written + b"\n", written + written):
        with pytest.raises(MessageUnreadable):
            bodies_in(damaged, pack)
    with pytest.raises(MessageUnreadable):
        bodies_in(written, replace(pack, items=pack.items + 1))


@pytest.mark.parametrize(
    "written",
    [
        b'{"sizes": [4, -1]}\nabc\n',
        b'{"sizes": [400, -100]}\n' + b"x" * 301 + b"\n",
        b'{"sizes": [true, 1]}\na\nb\n',
        b'{"sizes": [1e0, 1]}\na\nb\n',
        b'{"sizes": [01, 1]}\na\nb\n',
        b'{"sizes": [1,1]}\na\nb\n',
        b'{"sizes": [1, 1], "sizes": [1, 1]}\na\nb\n',
        b'{"sizes": [1, 1]} \na\nb\n',
        b'{"sizes": [1, 1]}\naxb\n',
        b'{"sizes": [1, 1]}\na\nbx',
        b'{"sizes": [3]}\na\nb\n',
        b"",
    ],
)
def test_an_index_has_one_spelling(written: bytes) -> None:
    with pytest.raises(MessageUnreadable):
        bodies_in(written, pack_of([b"a", b"b"]))


def test_a_pack_beyond_the_limit_is_unreadable() -> None:
    bodies = [b"x" * PACK_BYTES_MAX, b""]
    with pytest.raises(MessageUnreadable):
        bodies_in(contents(bodies), pack_of(bodies))


@given(
    st.lists(st.sampled_from([0, 1, 9, 10, 300, 70_000, 500_000, PACK_BYTES_MAX]), max_size=300),
    st.sampled_from([0, 1, 8192]),
    st.sampled_from([0, 1, 2, 3, 100, PACK_MESSAGES_MAX]),
)
def test_cutting_keeps_order_and_bytes(sizes: list[int], head: int, messages_max: int) -> None:
    runs = cut(sizes, head, messages_max)
    assert sum(runs) == len(sizes)
    ends = list(itertools.accumulate(runs))
    for count, end in zip(runs, ends, strict=True):
        assert 1 <= count <= max(1, messages_max)
        if count > 1:
            written = contents([b"x" * size for size in sizes[end - count : end]])
            assert head + len(written) <= PACK_BYTES_MAX
    for count, end in zip(runs[:-1], ends[:-1], strict=True):
        if count < messages_max:
            more = contents([b"x" * size for size in sizes[end - count : end + 1]])
            assert head + len(more) > PACK_BYTES_MAX, "a pack has room for the next body"


def test_ids_are_grouped_by_their_pack() -> None:
    first, second = (MessageId(each, items=3, extension="json") for each in UUIDS.packs(2))
    alone = MessageId(UUIDS.next())
    ids = [second.item(2), alone, first.item(1), second.item(1), first.item(3)]
    assert by_pack(ids) == {
        second.text: [second.item(2), second.item(1)],
        alone.text: [alone],
        first.text: [first.item(1), first.item(3)],
    }
    assert not is_whole(ids[:1])
    assert not is_whole([alone])
    assert not is_whole([first.item(1), first.item(1), first.item(4)])
    assert is_whole([first.item(3), *first.all_items()])
