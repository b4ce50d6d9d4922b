"""Reads bodies of JSON as dataclasses, or by a pydantic model's own method. Pure."""

import dataclasses
import json
import types
from collections import abc
from collections.abc import Callable, Collection, Mapping
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import (
    Any,
    ClassVar,
    Final,
    Literal,
    Protocol,
    TypeAlias,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

SHOWN_CHARS_MAX: Final = 60


class BadBody(ValueError):
    """A message's body does not fit its handler's type. The message goes to the sideline, since no
    retry would change that.
    """


class Dataclass(Protocol):
    """A dataclass."""

    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]


class Model(Protocol):
    """A model of pydantic."""

    @classmethod
    def model_validate_json(cls, json_data: bytes, /) -> Any:
        """The model that a body of JSON has. Raises ValueError."""


Reader: TypeAlias = Callable[[bytes], object]
"""Makes a value from a body. Raises BadBody."""
ValueReader: TypeAlias = Callable[[Any, str], Any]
"""Makes a value from a JSON value; the text is its place in the body. Raises ValueError."""
_Read: TypeAlias = ValueReader


def is_body(kind: object) -> bool:
    """Whether a handler's argument of this type is a message's body."""
    if not isinstance(kind, type):
        return dataclasses.is_dataclass(get_origin(kind))
    return dataclasses.is_dataclass(kind) or callable(getattr(kind, "model_validate_json", None))


def reader_of(kind: Any) -> Reader:
    """Reads bodies as this dataclass or model. Members that it does not have are ignored. Raises
    TypeError for a dataclass with a field whose type JSON cannot give.
    """
    validate: Callable[[bytes], object] | None = getattr(kind, "model_validate_json", None)
    if validate is None:
        of_json = _Readers().of(kind)
        validate = lambda body: of_json(json.loads(body), "it")  # noqa: E731

    def reads(body: bytes) -> object:
        try:
            return validate(body)
        except (ValueError, TypeError, RecursionError) as error:
            why = " ".join(str(error).split())
            raise BadBody(f"the message's body does not fit {kind.__name__}: {why}") from error

    return reads


def value_reader(kind: Any) -> ValueReader:
    """Reads values of this type, models too. Raises TypeError for a type that JSON cannot give."""
    return _Readers().of(type(None) if kind is None else kind)


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN_CHARS_MAX else f"{text[:SHOWN_CHARS_MAX]}..."


def _unlike(where: str, what: str, value: object) -> ValueError:
    return ValueError(f"{where} must be {what}, not {_shown(value)}")


def _plain(what: str, *kinds: type) -> _Read:
    def read(value: Any, where: str) -> Any:
        # True and False are numbers to Python.
        if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
            raise _unlike(where, what, value)
        return value

    return read


def _text(what: str, parse: Callable[[str], Any]) -> _Read:
    def read(value: Any, where: str) -> Any:
        try:
            return parse(value)
        except (ValueError, TypeError, AttributeError, ArithmeticError):
            raise _unlike(where, what, value) from None

    return read


def _number(value: Any, where: str) -> float:
    return float(_plain("a number", int, float)(value, where))


_SIMPLE: Final[Mapping[Any, _Read]] = {
    Any: lambda value, _: value,
    object: lambda value, _: value,
    str: _plain("a text", str),
    bool: _plain("true or false", bool),
    int: _plain("a whole number", int),
    float: _number,
    type(None): _plain("null", type(None)),
    dict: _plain("an object", dict),
    list: _plain("a list", list),
    datetime: _text("a time, such as 2026-12-24T18:00:00Z", datetime.fromisoformat),
    date: _text("a day, such as 2026-12-24", date.fromisoformat),
    UUID: _text("a UUID", UUID),
    Decimal: _text("a number", lambda value: Decimal(str(value))),
}
_LISTS: Final[Mapping[Any, Callable[[list[Any]], Collection[Any]]]] = {
    list: list,
    abc.Sequence: list,
    abc.Iterable: list,
    abc.Collection: list,
    set: set,
    frozenset: frozenset,
}


class _Readers:
    """The readers of types, each made once, so that a type may hold itself."""

    def __init__(self) -> None:
        self._known: dict[Any, _Read] = dict(_SIMPLE)

    def of(self, kind: Any) -> _Read:
        """The reader of a type. Raises TypeError."""
        kind = getattr(kind, "__supertype__", kind)  # NewType's.
        if (known := self._known.get(kind)) is None:
            if isinstance(kind, type) and dataclasses.is_dataclass(kind):
                return self._dataclass(kind)
            if callable(validate := getattr(kind, "model_validate", None)):
                return lambda value, _: validate(value)
            known = self._known[kind] = self._compound(kind)
        return known

    def _dataclass(self, kind: type) -> _Read:
        found: list[tuple[dataclasses.Field[Any], _Read]] = []

        def read(value: Any, where: str) -> Any:
            if not isinstance(value, dict):
                raise _unlike(where, "an object", value)
            given = {}
            for field, inner in found:
                place = field.name if where == "it" else f"{where}.{field.name}"
                if field.name in value:
                    given[field.name] = inner(value[field.name], place)
                elif (
                    field.default is dataclasses.MISSING
                    and field.default_factory is dataclasses.MISSING
                ):
                    raise ValueError(f"{place} is missing")
            return kind(**given)

        self._known[kind] = read
        try:
            hints = get_type_hints(kind)
        except NameError as error:
            raise TypeError(
                f"the types of {kind.__name__}'s fields cannot be read: {error}; define them "
                "where the module can see them"
            ) from None
        for field in dataclasses.fields(kind):
            if field.init:
                try:
                    found.append((field, self.of(hints[field.name])))
                except TypeError as error:
                    raise TypeError(f"{kind.__name__}.{field.name}: {error}") from None
        return read

    def _compound(self, kind: Any) -> _Read:
        origin, inner = get_origin(kind), get_args(kind)
        if isinstance(kind, type) and issubclass(kind, Enum):
            return _text(f"one of {', '.join(_shown(each.value) for each in kind)}", kind)
        if origin is Literal:
            return self._literal(inner)
        if origin in (Union, types.UnionType):
            return self._union([self.of(each) for each in inner], kind)
        if origin is tuple and inner[1:] != (...,):
            return self._tuple([self.of(each) for each in inner])
        if origin in _LISTS or origin is tuple:
            return self._list(self.of(inner[0]), _LISTS.get(origin, tuple))
        if origin in (dict, abc.Mapping) and inner[0] is str:
            return self._mapping(self.of(inner[1]))
        raise TypeError(
            f"a body of JSON gives no {kind.__name__ if isinstance(kind, type) else kind}"
        )

    def _literal(self, values: tuple[Any, ...]) -> _Read:
        what = f"one of {', '.join(_shown(each) for each in values)}"

        def read(value: Any, where: str) -> Any:
            for each in values:
                if each == value and type(each) is type(value):
                    return each
            raise _unlike(where, what, value)

        return read

    def _union(self, readers: list[_Read], kind: Any) -> _Read:
        def read(value: Any, where: str) -> Any:
            errors = []
            for each in readers:
                try:
                    return each(value, where)
                except (ValueError, TypeError) as error:
                    errors.append(error)
            # With null as the only other choice, the first has the reason.
            if len(errors) == 2 and type(None) in get_args(kind):
                raise errors[0] if get_args(kind)[1] is type(None) else errors[1]
            raise _unlike(where, str(kind).replace("|", "or"), value)

        return read

    def _list(self, inner: _Read, made: Callable[[list[Any]], Collection[Any]]) -> _Read:
        def read(value: Any, where: str) -> Any:
            if not isinstance(value, list):
                raise _unlike(where, "a list", value)
            return made([inner(each, f"{where}[{at}]") for at, each in enumerate(value)])

        return read

    def _tuple(self, inner: list[_Read]) -> _Read:
        def read(value: Any, where: str) -> Any:
            if not isinstance(value, list) or len(value) != len(inner):
                raise _unlike(where, f"a list of {len(inner)}", value)
            pairs = zip(inner, value, strict=True)
            return tuple(each(it, f"{where}[{at}]") for at, (each, it) in enumerate(pairs))

        return read

    def _mapping(self, inner: _Read) -> _Read:
        def read(value: Any, where: str) -> Any:
            if not isinstance(value, dict):
                raise _unlike(where, "an object", value)
            return {name: inner(each, f"{where}.{name}") for name, each in value.items()}

        return read
