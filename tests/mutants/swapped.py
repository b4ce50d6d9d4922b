"""A function that becomes another where it is imported already: only its code is exchanged.

What else names the function goes on doing so, and nothing has to be imported again.
"""

import functools
import inspect
import sys
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

from mq.store.disk.steps import Flush
from mutants.syntax import UNFLUSHED


def swap(checkout: Path, module: str, function: str) -> bool:
    """Exchanges the code of a module's function, or of the one that it lies in, for what the
    checkout has; False: that is not enough, and the module is to be imported anew.
    """
    imported = sys.modules.get(module.removesuffix(".py").replace("/", "."))
    if imported is None or not function:
        return False
    place = getattr(imported, "__file__", None) or module
    code = compile((checkout / module).read_text(), place, "exec")
    path, found = _function(imported, function.split("."))
    if found is None:
        return False
    made = _code(code, path)
    if made is None or made.co_freevars != found.__code__.co_freevars:
        return False
    found.__code__ = made
    # What a mutant adds to a module.
    vars(imported)[UNFLUSHED] = Flush
    return True


def _function(module: ModuleType, names: list[str]) -> tuple[list[str], FunctionType | None]:
    """The outermost function on the way, and the way there."""
    place: object = module
    for count, name in enumerate(names, 1):
        place = _bare(vars(place).get(name))
        if isinstance(place, FunctionType):
            return names[:count], place
        if not isinstance(place, type):
            break
    return names, None


def _bare(found: object) -> object:
    """Without what decorates it."""
    match found:
        case staticmethod() | classmethod():
            found = found.__func__
        case property():
            found = found.fget
        case functools.cached_property():
            found = found.func
        case _:
            pass
    return inspect.unwrap(found) if callable(found) else found


def _code(code: CodeType, path: list[str]) -> CodeType | None:
    """A function's code in its module's; None where that is not clear."""
    for name in path:
        inner = [each for each in code.co_consts if isinstance(each, CodeType)]
        found = [each for each in inner if each.co_name == name]
        if len(found) != 1:
            return None
        code = found[0]
    return code
