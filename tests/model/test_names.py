"""The grammar of names: what is printed is parsed, what is parsed prints the same."""

import contextlib
import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.clock import SystemClock
from mq.model.errors import BadName
from mq.model.limits import (
    FILE_NAME_BYTES_MAX,
    HEADER_BLOCK_BYTES_MAX,
    KEY_WRITTEN_BYTES_MAX,
    MESSAGE_TTL_S_MAX,
    PACK_MESSAGES_MAX,
    PACK_MESSAGES_MIN,
    PUBLISHED_MS_MAX,
    TAGS_MAX,
    VISIBILITY_S_MAX,
)
from mq.model.names import (
    EXTENSIONS,
    Key,
    MessageId,
    QueueName,
    UuidSource,
    extension_for,
    items_of,
    pack_of,
)

UUID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"

queue_characters = string.ascii_letters + string.digits + "_.-"
queue_names = st.builds(
    lambda first, rest, suffix: first + rest + suffix,
    st.sampled_from(string.ascii_letters + string.digits),
    st.text(queue_characters, max_size=54),
    st.sampled_from(["", "_SIDELINE"]),
)


def fits(text: str) -> bool:
    return 1 <= len(Key(text).written()) <= KEY_WRITTEN_BYTES_MAX


keys = st.builds(
    Key, st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=64).filter(fits)
)


def uuid_text(ms: int, count: int, tail: int) -> str:
    digits = f"{ms:012x}7{count:03x}{(0b10 << 62) | tail:016x}"
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


uuids = st.builds(
    uuid_text,
    st.integers(0, PUBLISHED_MS_MAX),
    st.integers(0, 2**12 - 1),
    st.integers(0, 2**62 - 1),
)
message_ids = st.builds(
    MessageId,
    uuid=uuids,
    priority=st.integers(0, 9),
    key=st.none() | keys,
    visibility_s=st.none() | st.integers(1, VISIBILITY_S_MAX),
    header_bytes=st.integers(0, HEADER_BLOCK_BYTES_MAX),
    tags=st.integers(0, TAGS_MAX),
    ttl_s=st.none() | st.integers(1, MESSAGE_TTL_S_MAX),
    extension=st.sampled_from(["", *EXTENSIONS]),
    group=st.just("") | st.text("0123456789abcdef", min_size=16, max_size=16),
)


@st.composite
def packs(draw: st.DrawFn) -> MessageId:
    uuid = draw(uuids)
    return MessageId(
        uuid=f"{uuid[:20]}000{uuid[23:]}",
        priority=draw(st.integers(0, 9)),
        visibility_s=draw(st.none() | st.integers(1, VISIBILITY_S_MAX)),
        header_bytes=draw(st.integers(0, HEADER_BLOCK_BYTES_MAX)),
        extension=draw(st.sampled_from(["", *EXTENSIONS])),
        items=draw(st.integers(PACK_MESSAGES_MIN, PACK_MESSAGES_MAX)),
    )


@given(packs(), st.data())
def test_a_item_and_its_pack_follow_from_each_other(pack: MessageId, data: st.DataObject) -> None:
    assert MessageId.parse(pack.text) == pack
    assert items_of(pack.text) == pack.items
    assert not pack.is_possible
    item = pack.item(data.draw(st.integers(1, pack.items)))
    assert MessageId.parse(item.text) == item
    assert items_of(item.text) == 1
    assert item.is_possible
    assert item.pack_size == pack.items
    assert not item.items
    assert item.pack() == pack
    assert pack_of(item.text) == pack.text == pack_of(pack.text)
    assert item.published_ms == pack.published_ms
    assert not pack.item(pack.items + 1).is_possible


def test_items_stand_between_their_pack_and_later_ids() -> None:
    source = UuidSource(SystemClock())
    uuids = [source.next(), *source.packs(3), source.next(), *source.packs(5000)]
    ids = [MessageId(uuid, items=3 if uuid[20:23] == "000" else 0) for uuid in uuids]
    files = [[each, *each.all_items()] if each.items else [each] for each in ids]
    in_order = [each.uuid for file in files for each in file]
    assert in_order == sorted(in_order)
    assert len(set(in_order)) == len(in_order)


@pytest.mark.parametrize(
    "attributes",
    [
        ",n=1",
        ",n=0",
        ",n=02",
        ",n=1001",
        ",n=9999",
        ",k=a,n=2",
        ",g=0123456789abcdef,n=2",
        ",t=1,n=2",
        ",e=60,n=2",
        ",n=2,e=60",
        ",h=9,n=2",
        ",n=2,v=1",
        ",n=2.nope",
    ],
)
def test_ids_of_packs_have_one_spelling(attributes: str) -> None:
    for place in ("000", "001"):
        text = f"{UUID[:20]}{place}{UUID[23:]}{attributes}"
        assert items_of(text) == 0
        with pytest.raises(BadName):
            MessageId.parse(text)


@given(message_ids)
def test_an_id_printed_parses_to_itself(message_id: MessageId) -> None:
    assert MessageId.parse(message_id.text) == message_id


@given(queue_names, message_ids)
def test_a_name_fits_a_folder_and_needs_no_quoting(queue: str, message_id: MessageId) -> None:
    name = f"{QueueName.parse(queue)}:{message_id}"
    assert len(name.encode()) <= FILE_NAME_BYTES_MAX
    assert set(message_id.text) <= set(string.ascii_letters + string.digits + "-_,=.")


# Near misses: a good id with a few characters put in, taken out or changed.
mangled = st.builds(
    lambda text, place, put, cut: text[:place] + put + text[place + cut :],
    message_ids.map(str),
    st.integers(0, 120),
    st.text("0123456789abcdefghkpv,=.-/:%\n\x00 Aé", max_size=3),
    st.integers(0, 3),
)


@given(mangled | st.text(max_size=300))
def test_whatever_parses_prints_the_same(text: str) -> None:
    with contextlib.suppress(BadName):
        assert MessageId.parse(text).text == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "..",
        UUID.upper(),
        UUID + "\n",
        UUID.replace("-7d2a", "-4d2a"),
        UUID.replace("-9b1e", "-cb1e"),
        UUID + ",p=0",
        UUID + ",p=10",
        UUID + ",p=3,p=3",
        UUID + ",k=a,p=3",
        UUID + ",k=",
        UUID + ",k==41",
        UUID + ",k==2f",
        UUID + ",k==FF",
        UUID + ",k=" + "a" * 65,
        UUID + ",v=0",
        UUID + ",v=030",
        UUID + f",v={VISIBILITY_S_MAX + 1}",
        UUID + ",t=0",
        UUID + ",t=10",
        UUID + ",v=1,t=1",
        UUID + ",e=0",
        UUID + ",e=1,v=1",
        UUID + f",e={MESSAGE_TTL_S_MAX + 1}",
        UUID + ",h=0",
        UUID + f",h={HEADER_BLOCK_BYTES_MAX + 1}",
        "e677d21fdc00" + UUID[12:],
        "e677d21f-dc00-7000-8000-000000000000",
        UUID + ".exe",
        UUID + ".d",
        UUID + ".json.json",
        "../" + UUID,
        UUID + "/x",
    ],
)
def test_what_is_no_id(text: str) -> None:
    with pytest.raises(BadName):
        MessageId.parse(text)


def test_the_parts_of_an_id() -> None:
    message_id = MessageId.parse(UUID + ",p=9,k=Hello=20World,t=2,v=120,e=60,h=123.json")
    assert message_id.priority == 9
    assert message_id.key == Key("Hello World")
    assert message_id.visibility_s == 120
    assert message_id.tags == 2
    assert message_id.ttl_s == 60
    assert message_id.expires_ms == message_id.published_ms + 60_000
    assert message_id.header_bytes == 123
    assert message_id.content_type == "application/json"
    assert message_id.published_ms == 0x0192F3A27C4E


@given(keys)
def test_a_key_written_reads_the_same(key: Key) -> None:
    assert Key.parse_written(key.written()) == key
    assert Key.parse(key.text) == key


@pytest.mark.parametrize("text", ["", "x" * 65, "é" * 11, "\ud800"])
def test_what_is_no_key(text: str) -> None:
    with pytest.raises(BadName):
        Key.parse(text)


@given(queue_names)
def test_a_queue_name_parses(text: str) -> None:
    name = QueueName.parse(text)
    assert str(name) == text
    assert QueueName.parse(name.sideline().text).text.endswith("_SIDELINE")


@pytest.mark.parametrize(
    "text", ["", ".", "..", ".a", "-a", "_a", "a/b", "a:b", "a b", "a\n", "a\x00", "é", "a" * 56]
)
def test_what_is_no_queue_name(text: str) -> None:
    with pytest.raises(BadName):
        QueueName.parse(text)


def test_extensions_and_content_types_are_one_to_one() -> None:
    assert len(set(EXTENSIONS.values())) == len(EXTENSIONS)
    assert all(extension_for(content_type) == ext for ext, content_type in EXTENSIONS.items())


@pytest.mark.parametrize(
    ("content_type", "extension"),
    [
        ("application/json", "json"),
        ("Application/JSON", "json"),
        ("application/json; charset=utf-8", ""),
        ("text/plain; charset=latin-1", ""),
        ("multipart/form-data; boundary=x", ""),
        ("application/x-www-form-urlencoded", ""),
        ("", ""),
    ],
)
def test_the_extension_for_a_content_type(content_type: str, extension: str) -> None:
    assert extension_for(content_type) == extension


class StandingClock:
    """A clock that shows what it is told."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000

    def now_ms(self) -> int:
        return self.ms

    def steady_s(self) -> float:
        return self.ms / 1000


@given(st.lists(st.integers(-5_000, 5_000), max_size=50))
def test_uuids_rise_whatever_the_clock_does(steps: list[int]) -> None:
    clock = StandingClock()
    source = UuidSource(clock)
    before = source.next()
    for step in steps:
        clock.ms += step
        after = source.next()
        assert after > before
        assert MessageId.parse(after).published_ms >= clock.ms
        before = after


@given(st.lists(st.tuples(st.integers(1, 9000), st.integers(-2000, 2000)), max_size=5))
def test_many_uuids_rise_and_go_on_where_others_ended(steps: list[tuple[int, int]]) -> None:
    clock = StandingClock()
    source = UuidSource(clock)
    made = [source.next()]
    for count, step in steps:
        clock.ms += step
        made += source.many(count)
        made.append(source.next())
    assert len(made) == 1 + sum(count + 1 for count, _ in steps)
    assert made == sorted(set(made))
    assert all(MessageId.parse(uuid).text == uuid for uuid in made)


def test_many_uuids_differ_by_chance_and_have_every_variant() -> None:
    made = UuidSource(StandingClock()).many(1000)
    assert {uuid[19] for uuid in made} == set("89ab")
    assert len({uuid[20:] for uuid in made}) == len(made)


@given(message_ids)
def test_the_id_of_another_message_says_the_same(message_id: MessageId) -> None:
    other = message_id.with_uuid(UUID)
    assert other == replace(message_id, uuid=UUID)
    assert other.text == replace(message_id, uuid=UUID).text


def test_uuids_rise_when_a_millisecond_runs_out() -> None:
    clock = StandingClock()
    source = UuidSource(clock)
    made = [source.next() for _ in range(10_000)]
    assert made == sorted(set(made))
    assert MessageId.parse(made[-1]).published_ms <= clock.ms + 5
