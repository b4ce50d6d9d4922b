"""What a piece of code does on the disk, by itself or through the functions that it names: whether
it changes files, looks at them, or flushes.

Names alone are followed: of a module's own functions and methods, and of those that it imports.
"""

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import NamedTuple

from mutants.syntax import Function, FunctionNode, is_durable, own_nodes

SYNCS = ("sync", "sync_folder", "sync_file_system", "fsync", "syncfs")


class Deed(Enum):
    """What calls of the seam, `mq/store/disk/files.py`, do."""

    CHANGE = (
        "create",
        "open_kept",
        "write",
        "stamp",
        "mkdir",
        "rename",
        "link",
        "unlink",
        "rmdir",
        "set_mode",
        "set_owner",
    )
    LOOK = ("status", "descriptor_status", "linked", "is_there", "entries", "read", "read_file")


class _Place(NamedTuple):
    """A function by its module and its name; a method, of whatever class there, as `.name`."""

    module: str
    name: str


class _Body(NamedTuple):
    """What a function does by itself, and the functions that it names."""

    deeds: frozenset[Deed]
    named: frozenset[_Place]


class Acts:
    """Of all functions of the package."""

    def __init__(self, trees: Mapping[str, ast.Module]) -> None:
        self._imports = {module: dict(_imported(tree)) for module, tree in trees.items()}
        self._nodes: dict[_Place, list[FunctionNode]] = defaultdict(list)
        for module, tree in trees.items():
            methods = {node for each in ast.walk(tree) for node in _methods(each)}
            for node in ast.walk(tree):
                if isinstance(node, FunctionNode):
                    name = f".{node.name}" if node in methods else node.name
                    self._nodes[_Place(module, name)].append(node)
        self._bodies = {
            place: [self._body(place.module, node, node) for node in nodes]
            for place, nodes in self._nodes.items()
        }
        self._deeds = self._settled()
        self._used = self._of_operations()

    def deeds(self, function: Function, node: ast.AST) -> set[Deed]:
        """What a piece of the function does; what it only hands on counts as done."""
        body = self._body(function.module, function.node, node)
        return set(body.deeds).union(*(self._deeds.get(place, set()) for place in body.named))

    def is_of_an_operation(self, function: Function) -> bool:
        """Whether it is a durable operation, or one of those names it, or names what names it."""
        outer, _, name = function.name.rpartition(".")
        places = [_Place(function.module, name)]
        if outer:
            places.append(_Place(function.module, f".{name}"))
        return any(place in self._used for place in places)

    def is_the_end(self, function: Function, statement: ast.stmt) -> bool:
        """Whether nothing comes behind it, since what it calls always raises."""
        called = self._body(function.module, function.node, statement).named
        return any(_always_raises(node) for place in called for node in self._nodes[place])

    def _body(self, module: str, function: ast.AST, node: ast.AST) -> _Body:
        own = _variables(function)
        deeds: set[Deed] = set()
        named: set[_Place] = set()
        for each in ast.walk(node):
            match each:
                case ast.Call(func=ast.Attribute(value=value, attr=attr)) if is_files(value):
                    deeds |= {deed for deed in Deed if attr in deed.value}
                case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="facts" | "_facts"))):
                    deeds.add(Deed.LOOK)
                case ast.Name(id=name, ctx=ast.Load()) if name not in own:
                    named.add(self._imports[module].get(name, _Place(module, name)))
                case ast.Attribute(value=ast.Name(id=of), attr=name):
                    place = self._imports[module].get(of, _Place(module, ""))
                    named.add(_Place(place.module, f".{name}"))
                case _:
                    pass
        return _Body(frozenset(deeds), frozenset(named & self._nodes.keys()))

    def _settled(self) -> dict[_Place, set[Deed]]:
        """What each does, by itself or through others."""
        done = {
            place: set().union(*(body.deeds for body in bodies))
            for place, bodies in self._bodies.items()
        }
        is_settled = False
        while not is_settled:
            is_settled = True
            for place, bodies in self._bodies.items():
                more = set().union(*(done[each] for body in bodies for each in body.named))
                if not more <= done[place]:
                    done[place] |= more
                    is_settled = False
        return done

    def _of_operations(self) -> set[_Place]:
        waiting = [place for place, nodes in self._nodes.items() if any(map(is_durable, nodes))]
        used: set[_Place] = set()
        while waiting:
            if (place := waiting.pop()) not in used:
                used.add(place)
                waiting += (each for body in self._bodies[place] for each in body.named)
        return used


def flushes(function: Function, node: ast.AST) -> bool:
    """Whether it waits for a flush: a yield of an operation, or a call of the seam."""
    for each in (node, *own_nodes(node)):
        match each:
            case ast.Yield() | ast.YieldFrom() if function.is_durable:
                return True
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in SYNCS:
                if is_files(value) or attr in ("fsync", "syncfs"):
                    return True
            case _:
                pass
    return False


def is_files(value: ast.expr) -> bool:
    """Whether it is the seam: `files`, `root.files`, `self._files`, or the class below."""
    match value:
        case ast.Name(id="files" | "_files") | ast.Attribute(attr="files" | "_files"):
            return True
        case ast.Call(func=ast.Name(id="super")):
            return True
        case _:
            return False


def _methods(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.ClassDef):
        yield from (each for each in node.body if isinstance(each, FunctionNode))


def _always_raises(function: FunctionNode) -> bool:
    returns = any(isinstance(node, ast.Return) for node in own_nodes(function))
    return isinstance(function.body[-1], ast.Raise) and not returns


def _variables(function: ast.AST) -> set[str]:
    """The names that are the function's own, and none of the module's functions."""
    if not isinstance(function, FunctionNode):
        return set()
    named = {each.arg for each in ast.walk(function.args) if isinstance(each, ast.arg)}
    stored = (each for each in own_nodes(function) if isinstance(each, ast.Name))
    return named | {each.id for each in stored if isinstance(each.ctx, ast.Store)}


def _imported(tree: ast.Module) -> Iterator[tuple[str, _Place]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            path = node.module.replace(".", "/") + ".py"
            for alias in node.names:
                yield alias.asname or alias.name, _Place(path, alias.name)
