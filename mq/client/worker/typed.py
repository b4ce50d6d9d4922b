"""Reads JSON as dataclasses, models and other types, and writes it, by pydantic. Pure.

Imported only for a typed body or a task: pydantic is an extra.
"""

import json
import math
from collections.abc import Callable
from typing import Any, Final

from mq.client.errors import one_line
from mq.client.worker.verdicts import BadBody
from mq.model.limits import MIB

try:
    from pydantic import ConfigDict, RootModel, ValidationError, create_model
    from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
    from pydantic_core import to_jsonable_python
except ImportError as error:
    raise ImportError(
        f"typed bodies and tasks need pydantic ({error}); pip install 'mq[typed]'"
    ) from error

# pydantic collects the faults of a body before it says one: of a larger body, gigabytes.
TYPED_BYTES_MAX: Final = MIB
# It needs seconds to describe a million faults.
FAULTS_MAX: Final = 1000


class _Strict(RootModel[Any]):
    # Dataclasses inside have this configuration too. Models have their own.
    model_config = ConfigDict(strict=True)


def reader_of(kind: Any, unfit: str) -> Callable[[bytes], Any]:
    """Makes a reader of JSON as this type, which raises BadBody; its text begins with `unfit`.
    Members that a dataclass lacks are ignored; a body has at most TYPED_BYTES_MAX. Raises TypeError
    for a type that JSON cannot give.
    """
    try:
        # pydantic 2.7 takes None for no type.
        root = type(None) if kind is None else kind
        model = create_model("It", __base__=_Strict, root=(root, ...))
        model.model_rebuild()
    except PydanticUndefinedAnnotation as error:
        raise TypeError(
            f"the types of {_named(kind)} cannot be read: {error.message}; define them where the "
            "module can see them"
        ) from None
    except PydanticUserError as error:
        why = error.message.splitlines()[0]
        raise TypeError(f"JSON cannot give {_named(kind)}: {why}") from None

    def reads(body: bytes) -> Any:
        if len(body) > TYPED_BYTES_MAX:
            raise BadBody(f"{unfit}: it has {len(body)} bytes, more than {TYPED_BYTES_MAX}")
        try:
            _DECODER.decode(body.decode())
            return model.model_validate_json(body).root
        except ValidationError as error:
            why = ValueError(_faults(error))
        except (ValueError, TypeError, RecursionError) as error:
            raise BadBody(f"{unfit}: {one_line(error)}") from error
        # Without its cause: a traceback would describe all of its faults.
        raise BadBody(f"{unfit}: {one_line(why)}")

    return reads


def json_of(value: object) -> bytes:
    """A value as JSON: also what pydantic can write. Raises TypeError, ValueError."""
    return json.dumps(
        value,
        ensure_ascii=False,
        allow_nan=False,
        separators=(",", ":"),
        default=to_jsonable_python,
    ).encode()


def _named(kind: Any) -> str:
    return kind.__name__ if isinstance(kind, type) else str(kind)


def _faults(error: ValidationError) -> str:
    if error.error_count() > FAULTS_MAX:
        return f"it has {error.error_count()} faults"
    faults = error.errors(include_url=False, include_context=False, include_input=False)
    places = (".".join(map(str, each["loc"])) for each in faults)
    return "; ".join(
        f"{place}: {each['msg']}" if place else each["msg"]
        for place, each in zip(places, faults, strict=True)
    )


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("an object has two members of one name")
    return found


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON, or too large")
    return number


# Refuses what pydantic reads as JSON: NaN, infinities, a member that comes twice.
_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_members, parse_float=_finite, parse_constant=_finite
)
