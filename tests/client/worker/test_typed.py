"""Bodies of JSON as dataclasses and models: what fits, and the words for what does not."""

import functools
import json
import math
import sys
from collections.abc import Callable, Mapping, Sequence
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

from mq import Worker, WorkerMessage
from mq.client.worker import BadBody
from mq.client.worker.forms import Form
from mq.client.worker.typed import json_of, reader_of
from mq.model.limits import MIB

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
class Holds:
    model: Model
    id: int = 0


@dataclass
class Checked:
    id: int

    def __post_init__(self) -> None:
        if self.id < 0:
            raise ValueError("an id is positive")


@functools.cache
def reader(kind: Any) -> Callable[[bytes], Any]:
    return reader_of(kind, f"the body does not fit {kind.__name__}")


def read(kind: Any, **members: Any) -> Any:
    return reader(kind)(json.dumps(members).encode())


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
        ({}, "id: Field required; dish: Field required"),
        ({"id": "7", "dish": DISH}, "id: Input should be a valid integer"),
        ({"id": True, "dish": DISH}, "id: Input should be a valid integer"),
        ({"id": 1.5, "dish": DISH}, "id: Input should be a valid integer"),
        ({"id": 1, "dish": 5}, "dish: Input should be an object"),
        ({"id": 1, "dish": {"name": None}}, "dish.name: Input should be a valid string"),
        ({"id": 1, "dish": {**DISH, "extras": [DISH, {}]}}, "dish.extras.1.name: Field required"),
        ({"id": 1, "dish": DISH, "size": "huge"}, "size: Input should be 'small' or 'large'"),
        ({"id": 1, "dish": DISH, "to": "moon"}, "to: Input should be 'table' or 'door'"),
        ({"id": 1, "dish": DISH, "note": 5}, "note: Input should be a valid string"),
        ({"id": 1, "dish": DISH, "table": "x"}, "table: Input should be a valid integer"),
        ({"id": 1, "dish": DISH, "at": "soon"}, "at: Input should be a valid datetime"),
        ({"id": 1, "dish": DISH, "at": 5}, "at: Input should be a valid datetime"),
        ({"id": 1, "dish": DISH, "day": 5}, "day: Input should be a valid date"),
        ({"id": 1, "dish": DISH, "paid": "x"}, "paid: Input should be a valid decimal"),
        ({"id": 1, "dish": DISH, "paid": "NaN"}, "paid: Input should be a finite number"),
        ({"id": 1, "dish": DISH, "ref": 5}, "ref: UUID input should be a string"),
        ({"id": 1, "dish": DISH, "spot": [1]}, "spot.1: Field required"),
        ({"id": 1, "dish": DISH, "more": {"a": "b"}}, "more.a: Input should be a valid integer"),
        ({"id": 1, "dish": DISH, "hot": 1}, "hot: Input should be a valid boolean"),
        ({"id": 1, "dish": DISH, "either": None}, "either.str: Input should be a valid string"),
        ({"id": 1, "dish": DISH, "price": "1"}, "price: Input should be a valid number"),
        ({"id": 1, "dish": DISH, "price": True}, "price: Input should be a valid number"),
        ({"id": 1, "dish": DISH, "price": "x" * 500}, "price: Input should be a valid number"),
        ({"id": 1, "dish": DISH, "more": {"x\n" * 500: "b"}}, "more.x x"),
        ({"id": 1, "dish": DISH, "ways": ["x"] * 900}, "ways.0: Input should be"),
        ({"id": 1, "dish": DISH, "ways": ["x"] * 1001}, "it has 1001 faults"),
    ],
)
def test_a_member_that_does_not_fit_is_named(members: dict[str, Any], words: str) -> None:
    with pytest.raises(BadBody) as refused:
        read(Order, **members)
    said = str(refused.value)
    assert "does not fit Order: " in said
    assert words in said
    assert len(said) < 400
    assert "\n" not in said


def member(name: str, value: bytes) -> bytes:
    return b'{"id": 1, "dish": {"name": "soup"}, "%b": %b}' % (name.encode(), value)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[1]",
        b"null",
        b"[" * 100_000,
        b'{"id":' * 100_000,
        member("what", b"[" * 500 + b"]" * 500),
        member("unknown", b"[" * 100_000 + b"]" * 100_000),
        b"\xff",
        member("note", b'"\xff"'),
        member("what", b'"\\ud800"'),
        member("price", b"NaN"),
        member("what", b"NaN"),
        member("unknown", b"[-Infinity]"),
        member("price", b"1e999"),
        member("what", b"1e999"),
        member("id", b"9" * 100_000),
        member("what", b"9" * 100_000),
        member("id", b"2"),
        member("ways", b"[0" + b",0" * MIB + b"]"),
        member("what", b'{"a": 1, "a": 2}'),
        json.dumps({"id": 1, "dish": {"name": "soup"}}).encode("utf-16"),
    ],
    ids=range(22),
)
@pytest.mark.parametrize("kind", [Order, Model])
def test_what_is_no_object_of_json_does_not_fit(kind: type, body: bytes) -> None:
    with pytest.raises(BadBody, match=f"does not fit {kind.__name__}") as refused:
        reader(kind)(body)
    assert len(str(refused.value)) < 400
    assert "\n" not in str(refused.value)


def test_what_a_class_refuses_itself_does_not_fit() -> None:
    with pytest.raises(BadBody, match="an id is positive"):
        read(Checked, id=-1)


def test_a_model_reads_itself() -> None:
    assert read(Model, id="7") == Model(id=7)
    assert read(Holds, model={"id": "7"}) == Holds(Model(id=7))
    with pytest.raises(BadBody, match=r"does not fit Holds: id: Input"):
        read(Holds, model={"id": "7"}, id="7")
    with pytest.raises(BadBody, match=r"does not fit Model: id: Field required"):
        read(Model, dish="soup")


@given(JSON)
def test_any_json_is_read_or_does_not_fit(value: Any) -> None:
    for kind in (Order, Dish, Checked, Model):
        try:
            found = reader(kind)(json.dumps(value).encode())
        except BadBody:
            continue
        assert isinstance(found, kind)


def test_types_that_no_json_gives_are_refused_before_any_message() -> None:
    class Lock: ...

    @dataclass
    class Odd:
        what: Lock

    @dataclass
    class Unseen:
        what: "Nowhere"  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(TypeError, match=r"JSON cannot give Odd: .*Lock"):
        reader(Odd)
    with pytest.raises(TypeError, match=r"types of Unseen cannot be read: .*Nowhere"):
        reader(Unseen)


def test_what_is_written_is_read_again() -> None:
    order = Order(
        id=OrderId(7), dish=Dish("soup", [Dish("bread")]), size=Size.LARGE, seats={1}, hot=True,
        at=datetime(2026, 12, 24, 18, tzinfo=UTC), day=date(2026, 12, 24), paid=Decimal("9.50"),
        ref=UUID(int=7), spot=(1, "a"), ways=(1, 2), what={"a": [None]}, tags=["ä"],
    )  # fmt: skip
    assert reader(Order)(json_of(order)) == order
    for odd in (float("nan"), Dish, object(), Order(id=OrderId(1), dish=Dish("a"), price=math.inf)):
        with pytest.raises((ValueError, TypeError)):
            json_of([odd])


@pytest.mark.parametrize("value", [[1] * 400_000, "\u00e4" * 400_000], ids=["list", "text"])
def test_a_result_that_is_kept_is_read_again(value: object) -> None:
    form = Form("greet", lambda: None, has_result=True)
    assert form.result(json.loads(form.written_result(value))["result"]) == value


def test_without_pydantic_the_way_to_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pydantic", None)
    for name in ("typed", "forms"):
        monkeypatch.delitem(sys.modules, f"mq.client.worker.{name}", raising=False)
    worker = Worker(queue="orders")

    @worker.handler
    def plain(message: WorkerMessage) -> None: ...

    def typed(dish: Dish) -> None: ...

    for register in (worker.handler("dishes"), worker.task):
        with pytest.raises(ImportError, match=r"need pydantic .*; pip install 'mq\[typed\]'"):
            register(typed)
