"""Bodies of JSON as dataclasses and models: what fits, and the words for what does not."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal, NewType, Optional
from uuid import UUID

import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.client.worker.typed import BadBody, is_body, reader_of

OrderId = NewType("OrderId", int)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=9,
)


class Size(Enum):
    SMALL = "small"
    LARGE = "large"


@dataclass
class Dish:
    name: str
    extras: "list[Dish]" = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    id: OrderId
    dish: Dish
    price: float = 0.0
    size: Size = Size.SMALL
    to: Literal["table", "door"] = "table"
    note: str | None = None
    table: Optional[int] = None  # noqa: UP045
    at: datetime | None = None
    day: date | None = None
    paid: Decimal | None = None
    ref: UUID | None = None
    tags: Sequence[str] = ()
    seats: set[int] = field(default_factory=set)
    spot: tuple[int, str] | None = None
    ways: tuple[int, ...] = ()
    more: Mapping[str, int] = field(default_factory=dict)
    what: Any = None
    hot: bool = False
    either: int | str = 0
    made: int = field(default=5, init=False)


class Model(pydantic.BaseModel):
    id: int
    dish: str = "soup"


@dataclass
class Checked:
    id: int

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("an id is positive")


def read(kind: Any, **members: Any) -> Any:
    return reader_of(kind)(json.dumps(members).encode())


def test_each_member_becomes_its_type() -> None:
    assert read(Order, id=7, dish={"name": "soup"}) == Order(id=OrderId(7), dish=Dish("soup"))
    found = read(
        Order,
        id=7, dish={"name": "soup", "extras": [{"name": "bread", "extras": []}]}, price=9,
        size="large", to="door", note="x", table=4, at="2026-12-24T18:00:00Z", day="2026-12-24",
        paid="9.50", ref="0192f3a2-7c4e-7d2a-9b1e-0123456789ab", tags=["a"], seats=[1, 1],
        spot=[1, "a"], ways=[1, 2], more={"a": 1}, what=[None], hot=True, either="x", unknown=1,
    )  # fmt: skip
    assert found == Order(
        id=OrderId(7), dish=Dish("soup", [Dish("bread")]), price=9.0, size=Size.LARGE, to="door",
        note="x", table=4, at=datetime(2026, 12, 24, 18, tzinfo=UTC), day=date(2026, 12, 24),
        paid=Decimal("9.50"), ref=UUID("0192f3a2-7c4e-7d2a-9b1e-0123456789ab"), tags=["a"],
        seats={1}, spot=(1, "a"), ways=(1, 2), more={"a": 1}, what=[None], hot=True, either="x",
    )  # fmt: skip


DISH = {"name": "soup"}


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({}, "id is missing"),
        ({"id": "7", "dish": DISH}, 'id must be a whole number, not "7"'),
        ({"id": True, "dish": DISH}, "id must be a whole number, not true"),
        ({"id": 1.5, "dish": DISH}, "id must be a whole number, not 1.5"),
        ({"id": 1, "dish": 5}, "dish must be an object, not 5"),
        ({"id": 1, "dish": {"name": None}}, "dish.name must be a text, not null"),
        ({"id": 1, "dish": {**DISH, "extras": [DISH, {}]}}, "dish.extras[1].name is missing"),
        ({"id": 1, "dish": DISH, "size": "huge"}, 'size must be one of "small", "large"'),
        ({"id": 1, "dish": DISH, "to": "moon"}, 'to must be one of "table", "door"'),
        ({"id": 1, "dish": DISH, "note": 5}, "note must be a text, not 5"),
        ({"id": 1, "dish": DISH, "table": "x"}, "table must be a whole number"),
        ({"id": 1, "dish": DISH, "at": "soon"}, "at must be a time"),
        ({"id": 1, "dish": DISH, "at": 5}, "at must be a time"),
        ({"id": 1, "dish": DISH, "paid": "x"}, "paid must be a number"),
        ({"id": 1, "dish": DISH, "ref": 5}, "ref must be a UUID"),
        ({"id": 1, "dish": DISH, "spot": [1]}, "spot must be a list of 2"),
        ({"id": 1, "dish": DISH, "more": {"a": "b"}}, "more.a must be a whole number"),
        ({"id": 1, "dish": DISH, "hot": 1}, "hot must be true or false"),
        ({"id": 1, "dish": DISH, "either": None}, "either must be"),
        ({"id": 1, "dish": DISH, "price": "x" * 500}, "price must be a number"),
    ],
)
def test_a_member_that_does_not_fit_is_named(members: dict[str, Any], words: str) -> None:
    with pytest.raises(BadBody) as refused:
        read(Order, **members)
    said = str(refused.value)
    assert "does not fit Order: " in said
    assert words in said
    assert len(said) < 200
    assert "\n" not in said


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[1]", b"null", b"[" * 100_000])
@pytest.mark.parametrize("kind", [Order, Model])
def test_what_is_no_object_of_json_does_not_fit(kind: type, body: bytes) -> None:
    with pytest.raises(BadBody, match=f"does not fit {kind.__name__}"):
        reader_of(kind)(body)


def test_what_a_class_refuses_itself_does_not_fit() -> None:
    with pytest.raises(BadBody, match="an id is positive"):
        read(Checked, id=-1)


def test_a_model_reads_itself() -> None:
    assert read(Model, id="7") == Model(id=7)
    with pytest.raises(BadBody, match=r"does not fit Model: .*id"):
        read(Model, dish="soup")


@given(JSON)
def test_any_json_is_read_or_does_not_fit(value: Any) -> None:
    for kind in (Order, Dish, Checked, Model):
        try:
            found = reader_of(kind)(json.dumps(value).encode())
        except BadBody:
            continue
        assert isinstance(found, kind)


def test_types_that_no_json_gives_are_refused_before_any_message() -> None:
    @dataclass
    class Odd:
        what: complex

    @dataclass
    class Unseen:
        what: "Nowhere"  # type: ignore[name-defined] # noqa: F821

    @dataclass
    class Keys:
        what: dict[int, str]

    with pytest.raises(TypeError, match=r"Odd\.what: a body of JSON gives no complex"):
        reader_of(Odd)
    with pytest.raises(TypeError, match="Unseen's fields cannot be read"):
        reader_of(Unseen)
    with pytest.raises(TypeError, match=r"Keys\.what: a body of JSON gives no dict\[int, str\]"):
        reader_of(Keys)


@pytest.mark.parametrize("kind", [int, str, dict[str, int], list[Order], Any, None, Size])
def test_other_types_are_no_bodies(kind: Any) -> None:
    assert not is_body(kind)
