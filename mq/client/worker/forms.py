"""A task's arguments and its result as JSON, by its annotations. Pure."""

import inspect
import json
from collections.abc import Callable
from dataclasses import field, make_dataclass
from typing import Any, Final, cast

from mq.client.worker.typed import json_of, reader_of
from mq.client.worker.verdicts import BadBody, BadResult
from mq.model.limits import MIB

# A result is read as a whole.
RESULT_BYTES_MAX: Final = MIB


class Form:
    """Reads and writes a task's calls and results. Raises TypeError for an annotation that JSON
    cannot give.
    """

    def __init__(self, name: str, function: Callable[..., object], has_result: bool) -> None:
        self._name = name
        self._unfit = f"the arguments do not fit the task {name}"
        try:
            self._signature = inspect.signature(function, eval_str=True)
        except NameError as error:
            raise TypeError(
                f"the annotations of the task {name} cannot be read: {error}; define them where "
                "the module can see them"
            ) from None
        members = [_member(each) for each in self._signature.parameters.values()]
        arguments = make_dataclass(f"arguments of {name}", members, kw_only=True)
        self._arguments = reader_of(arguments, self._unfit)
        result = self._signature.return_annotation
        if not has_result or result is inspect.Signature.empty:
            result = Any
        self._result = reader_of(result, f"the result does not fit the task {name}")

    def written(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bytes:
        """The body of a call. Raises TypeError for arguments that the function does not take;
        ValueError for those that are no JSON; BadBody for values that do not fit its annotations.
        """
        body = json_of(self._signature.bind(*args, **kwargs).arguments)
        self.arguments(body)
        return body

    def arguments(self, body: bytes) -> inspect.BoundArguments:
        """The arguments that a body has. Raises BadBody."""
        found = self._arguments(body)
        given = {}
        for name in json.loads(body):
            if name not in self._signature.parameters:
                raise BadBody(f"{self._unfit}: the task has no argument {name[:80]}")
            given[name] = getattr(found, name)
        bound = inspect.BoundArguments(self._signature, cast(Any, given))
        bound.apply_defaults()
        return bound

    def result(self, value: object) -> Any:
        """The result that a value of JSON stands for. Raises BadBody."""
        return self._result(json_of(value))

    def written_result(self, value: object) -> bytes:
        """The body that keeps a result. Raises BadResult."""
        try:
            body = json_of({"result": value})
        except (TypeError, ValueError, RecursionError) as error:
            raise BadResult(f"the result of the task {self._name} is no JSON: {error}") from error
        if len(body) > RESULT_BYTES_MAX:
            raise BadResult(
                f"the result of the task {self._name} has {len(body)} bytes of JSON, more than "
                f"{RESULT_BYTES_MAX}: store it, and return where it is"
            )
        return body


def _member(parameter: inspect.Parameter) -> tuple[str, Any, Any]:
    """The member of a call's body that has this parameter."""
    kind: Any = Any if parameter.annotation is parameter.empty else parameter.annotation
    if parameter.kind is parameter.VAR_POSITIONAL:
        return parameter.name, list[kind], field(default=())
    if parameter.kind is parameter.VAR_KEYWORD:
        return parameter.name, dict[str, kind], field(default=None)
    # The function itself has the default.
    is_needed = parameter.default is parameter.empty
    return parameter.name, kind, field() if is_needed else field(default=None)
