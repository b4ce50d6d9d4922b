"""A module's functions, and a change of a piece of its text: what rules work with."""

import ast
import functools
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

FunctionNode: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
# A flush of nothing. The import goes to the module's end, where it is in no way of what is above.
UNFLUSHED = "Unflushed"
IMPORT = f"\nfrom mq.store.disk.steps import Flush as {UNFLUSHED}  # noqa: E402\n"
_NAME_CHARS = 90


@dataclass(frozen=True)
class Mutant:
    """One module's source, changed."""

    name: str
    module: str
    """Its path in the checkout, such as `mq/store/operations/publish.py`."""
    source: str
    function: str
    """Where in it, such as `Claims.take`; empty: outside of all functions."""

    def write(self, checkout: Path) -> None:
        """Changes a copy of the checkout."""
        (checkout / self.module).write_text(self.source)


@dataclass(frozen=True)
class Edit:
    """Text from one place of a module to another, (line, byte), becomes this."""

    begin: tuple[int, int]
    end: tuple[int, int]
    text: str


@dataclass(frozen=True)
class Change:
    """What is changed, in a few words, and the edits that do it."""

    what: str
    edits: tuple[Edit, ...]


@dataclass(frozen=True)
class Function:
    """A function of a module, or, for what lies outside of all functions, the module itself."""

    module: str
    name: str
    node: FunctionNode | ast.Module
    source: str

    @functools.cached_property
    def is_durable(self) -> bool:
        """Whether it is a generator of flushes: an operation, or a part of one."""
        return is_durable(self.node)

    @functools.cached_property
    def nodes(self) -> Sequence[ast.AST]:
        """Its own nodes, in the order of the text; those of functions in it are theirs."""
        return tuple(own_nodes(self.node))


Rule: TypeAlias = Callable[[Function], Iterator[Change]]


def functions(module: str, source: str) -> Iterator[Function]:
    """All of a module, and those in others; the module itself comes first."""
    tree = ast.parse(source)
    yield Function(module, "", tree, source)
    yield from (Function(module, name, node, source) for name, node in _named(tree, ""))


def _named(node: ast.AST, inside: str) -> Iterator[tuple[str, FunctionNode]]:
    for child in ast.iter_child_nodes(node):
        name = inside
        if isinstance(child, FunctionNode | ast.ClassDef):
            name = f"{inside}.{child.name}" if inside else child.name
        if isinstance(child, FunctionNode):
            yield name, child
        yield from _named(child, name)


def is_durable(node: ast.AST) -> bool:
    """See `Function.is_durable`."""
    returns = getattr(node, "returns", None)
    return returns is not None and "Steps[" in ast.unparse(returns)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """Without the nodes of functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, FunctionNode | ast.ClassDef):
            yield from own_nodes(child)


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of statements right below a node."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        found = getattr(node, name, None)
        if not isinstance(found, list) or not found:
            continue
        if isinstance(found[0], ast.stmt):
            yield found
        else:
            yield from (each.body for each in found)


def replace(node: ast.expr, text: str) -> Edit:
    """An expression becomes another."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    begin, end = (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)
    return Edit(begin, end, text)


def cut(statement: ast.stmt | ast.ExceptHandler, text: str = "") -> Edit:
    """A statement, or what follows an error, becomes another, or none at all."""
    assert statement.end_lineno is not None
    return Edit((_first_line(statement), 0), (statement.end_lineno + 1, 0), _as(statement, text))


def insert_before(statement: ast.stmt, text: str) -> Edit:
    """Other statements come before this one."""
    line = _first_line(statement)
    return Edit((line, 0), (line, 0), _as(statement, text))


def insert_behind(statement: ast.stmt, text: str) -> Edit:
    """Other statements come after this one."""
    assert statement.end_lineno is not None
    line = statement.end_lineno + 1
    return Edit((line, 0), (line, 0), _as(statement, text))


def text_of(source: str, statement: ast.stmt) -> str:
    """A statement's text, as far to the left as it goes."""
    lines = source.splitlines(keepends=True)
    return textwrap.dedent("".join(lines[_first_line(statement) - 1 : statement.end_lineno]))


def said(node: ast.AST) -> str:
    """The node in one line, for a name."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _NAME_CHARS else f"{text[: _NAME_CHARS - 3]}..."


def brief(statement: ast.stmt) -> str:
    """The statement in one line; of one with others in it, what it begins with."""
    if not any(blocks(statement)):
        return said(statement)
    return ast.unparse(statement).partition("\n")[0].rstrip(":")


def edited(source: str, edits: tuple[Edit, ...]) -> str:
    """The source with these edits, none of which overlap."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    text = b"".join(lines)

    def at(place: tuple[int, int]) -> int:
        return starts[min(place[0] - 1, len(lines))] + place[1]

    for edit in sorted(edits, key=lambda each: (each.begin, each.end), reverse=True):
        text = text[: at(edit.begin)] + edit.text.encode() + text[at(edit.end) :]
    changed = text.decode()
    return changed + IMPORT if UNFLUSHED in changed else changed


def _first_line(statement: ast.stmt | ast.ExceptHandler) -> int:
    decorators = getattr(statement, "decorator_list", [])
    return min([statement.lineno, *(each.lineno for each in decorators)])


def _as(statement: ast.stmt | ast.ExceptHandler, text: str) -> str:
    if not text:
        return ""
    return textwrap.indent(text.rstrip("\n") + "\n", " " * statement.col_offset)
