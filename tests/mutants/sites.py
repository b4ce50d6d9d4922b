"""Every place of the package where a flush is asked for or made, found in its syntax.

A mutant is the package with one of them taken out, or with two steps in the wrong order. The
first kind is found here, so a flush that somebody adds is one more mutant by itself; the second
kind is written down in `orderings.py`.
"""

import ast
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SYNCS = ("sync", "sync_folder", "sync_file_system", "fsync", "syncfs")
PARTS = ("files", "folders", "entries", "beside")
NAMED_FOLDERS = ("folders", "ends")
# A flush of nothing; the import goes to the module's end, where it is in nobody's way.
UNFLUSHED = "Unflushed"
IMPORT = f"\nfrom mq.store.steps import Flush as {UNFLUSHED}  # noqa: E402\n"


@dataclass(frozen=True)
class Mutant:
    """One module's source, changed."""

    name: str
    module: str
    """Its path in the checkout, such as `mq/store/publish.py`."""
    source: str

    def write(self, checkout: Path) -> None:
        """Changes a copy of the checkout."""
        (checkout / self.module).write_text(self.source)


@dataclass(frozen=True)
class _Change:
    what: str
    node: ast.AST
    text: str


def left_out(checkout: Path, modules: list[str]) -> Iterator[Mutant]:
    """A mutant for each flush, and each part of one, that these modules have."""
    for module in modules:
        source = (checkout / module).read_text()
        named: Counter[str] = Counter()
        for function in _functions(ast.parse(source)):
            for change in _changes(function):
                name = f"{module} {function.name}: {change.what}"
                named[name] += 1
                again = f" ({named[name]})" if named[name] > 1 else ""
                yield Mutant(name + again, module, replaced(source, change.node, change.text))


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield node


def _changes(function: ast.FunctionDef) -> Iterator[_Change]:
    steps = function.returns is not None and "Steps[" in ast.unparse(function.returns)
    yielded = {node.value for node in ast.walk(function) if isinstance(node, ast.Yield)}
    for node in ast.walk(function):
        match node:
            case ast.Yield(value=ast.expr() as value) if steps:
                text = f"({ast.unparse(value)}, {UNFLUSHED}())[1]"
                yield _Change(f"flush nothing for {ast.unparse(value)}", value, text)
            case ast.Call(
                func=ast.Name(id="Flush") | ast.Attribute(attr="_replace"), keywords=[_, *_]
            ):
                yield from _without_parts(node, is_yielded=node in yielded)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Tuple() as value):
                if name in NAMED_FOLDERS:
                    yield from _without_folders(value)
            case ast.Call(func=ast.Attribute(attr=attribute)) if attribute in SYNCS:
                yield _Change(f"leave out {ast.unparse(node)}", node, "0")
            case _:
                pass


def _without_parts(call: ast.Call, is_yielded: bool) -> Iterator[_Change]:
    for keyword in call.keywords:
        if keyword.arg not in PARTS:
            continue
        rest = [ast.unparse(other) for other in call.keywords if other is not keyword]
        text = f"{ast.unparse(call.func)}({', '.join([*map(ast.unparse, call.args), *rest])})"
        # Else it is the mutant that flushes nothing.
        if rest or isinstance(call.func, ast.Attribute) or not is_yielded:
            yield _Change(f"flush no {keyword.arg} of {ast.unparse(call)}", call, text)
        if isinstance(keyword.value, ast.Tuple):
            yield from _without_folders(keyword.value)


def _without_folders(folders: ast.Tuple) -> Iterator[_Change]:
    if len(folders.elts) < 2:
        return
    for part in folders.elts:
        yield _Change(f"flush not {ast.unparse(part)}", folders, _tuple(folders.elts, part))
    yield _Change("flush the folders the other way round", folders, _tuple(folders.elts[::-1]))


def _tuple(parts: list[ast.expr], missing: ast.expr | None = None) -> str:
    return "(" + "".join(f"{ast.unparse(part)}, " for part in parts if part is not missing) + ")"


def replaced(source: str, node: ast.AST, text: str) -> str:
    """The source with the node's text replaced."""
    assert isinstance(node, ast.expr)
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    lines = source.encode().splitlines(keepends=True)
    before = b"".join(lines[: node.lineno - 1]) + lines[node.lineno - 1][: node.col_offset]
    behind = lines[node.end_lineno - 1][node.end_col_offset :] + b"".join(lines[node.end_lineno :])
    changed = (before + text.encode() + behind).decode()
    return changed + IMPORT if UNFLUSHED in text else changed
