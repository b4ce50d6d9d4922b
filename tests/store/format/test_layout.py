"""Names to paths and back."""

from pathlib import Path

import pytest

from mq.model.errors import BadName
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.store.format.layout import Layout, is_deleted_folder, parse_entry

UUID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"
QUEUE = QueueName.parse("orders")
MESSAGE = MessageId.parse(UUID + ".json")
LAYOUT = Layout.of("/r")


@pytest.mark.parametrize(
    ("state", "path"),
    [
        (State.NEW, f"/r/new/orders:{UUID}.json"),
        (State.READY, f"/r/queues/orders/{UUID}.json"),
        (State.DELAYED, f"/r/delay/orders:{UUID}.json"),
        (State.REMOVED, f"/r/remove/orders:{UUID}.json"),
    ],
)
def test_where_a_message_is(state: State, path: str) -> None:
    assert LAYOUT.path(state, QUEUE, MESSAGE) == path
    assert Path(path).parent == Path(LAYOUT.parent(state, QUEUE))


def test_an_entry_parses_to_queue_and_id() -> None:
    assert parse_entry(f"orders:{UUID}.json") == (QUEUE, MESSAGE)


@pytest.mark.parametrize(
    "name",
    ["", ".probe", ".nfs0001", UUID, "orders:", f":{UUID}", f"or/ders:{UUID}", f"a:b:{UUID}",
     f"orders:{UUID}.d", f"orders:{UUID}~"],
)  # fmt: skip
def test_foreign_names(name: str) -> None:
    with pytest.raises(BadName):
        parse_entry(name)


def test_a_deleted_queue_s_folder_is_no_message() -> None:
    name = Path(LAYOUT.deleted_folder(QUEUE, UUID)).name
    assert is_deleted_folder(name)
    assert not is_deleted_folder(f"orders:{UUID}")
    assert not is_deleted_folder("foreign.d")
    with pytest.raises(BadName):
        parse_entry(name)


def test_a_layout_between_two_folders_has_its_tombstones_beside_the_source() -> None:
    layout = Layout.between(Path("/a/waiting"), Path("/b/ready"))
    assert layout.path(State.DELAYED, QUEUE, MESSAGE).startswith("/a/waiting/orders:")
    assert layout.path(State.READY, QUEUE, MESSAGE).startswith("/b/ready/orders/")
    assert layout.tombstone(QUEUE) == "/a/deleted/orders"
    assert layout.remove == "/a/remove"
