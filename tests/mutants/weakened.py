"""Rules that weaken what an operation decides, or what a call asks of the system."""

import ast
from collections.abc import Iterator

from mutants.acts import SYNCS, Acts, Deed, flushes
from mutants.syntax import (
    Change,
    Function,
    blocks,
    brief,
    cut,
    insert_before,
    own_nodes,
    replace,
    said,
)

_SEAM = "mq/store/disk/files.py"
# What an open is made for: without one of these it fails, or is another call.
_NEEDED_FLAGS = ("O_RDONLY", "O_WRONLY", "O_RDWR", "O_PATH", "O_CREAT", "O_CLOEXEC")
_OF_FILES = {"BaseException", "Exception", "OSError", "FilesFailed"}
_OF_FILES |= {"FileNotFoundError", "PermissionError"}


def swallowed(function: Function) -> Iterator[Change]:
    """An error of a flush goes no further; of a sync, each step of what follows is left out."""
    for guarded in _guarded(function):
        is_sync = any(_syncs(statement) for statement in guarded.body)
        for handler in guarded.handlers:
            if not _is_of_files(handler):
                continue
            kind = "" if handler.type is None else f" {said(handler.type)}"
            for statement in handler.body:
                if is_sync or _raises(statement):
                    what = f"of except{kind}: no {brief(statement)}"
                    yield Change(what, (cut(statement, "pass"),))


def tried_again(function: Function) -> Iterator[Change]:
    """A sync that failed is made again."""
    for guarded in _guarded(function):
        for statement in guarded.body if guarded.handlers else ():
            if not any(blocks(statement)) and _syncs(statement):
                first, *rest = guarded.handlers
                text = f"except OSError:\n    {ast.unparse(statement)}"
                edits = (cut(first, text), *(cut(each) for each in rest))
                yield Change(f"{said(statement)} once more where it failed", edits)


def unlocked(function: Function) -> Iterator[Change]:
    """A lock is not taken; or a claim's ends before its stamp, or before its flush."""
    for node in function.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr="lock")):
                yield Change(f"without {said(node)}", (replace(node, "True"),))
            case ast.Call(func=ast.Attribute(attr="wait_for_lock" | "wait_to_share_lock")):
                yield Change(f"without {said(node)}", (replace(node, "None"),))
            case ast.With(items=[ast.withitem(ast.Call(func=ast.Name(id=name)) as call, None)]):
                if name.endswith("_locked"):
                    nothing = "__import__('contextlib').nullcontext()"
                    yield Change(f"without {said(call)}", (replace(call, nothing),))
            case ast.Expr(value=value) if function.is_durable and _is_of_claim(value):
                edit = insert_before(node, "root.files.unlock(claim.descriptor)")
                yield Change(f"unlocked before {said(node)}", (edit,))
            case _:
                pass


def flags(function: Function) -> Iterator[Change]:
    """A call of the seam asks the system for less."""
    if function.module != _SEAM:
        return
    for node in function.nodes:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value):
                for flag in ast.walk(value):
                    if isinstance(flag, ast.Attribute) and _is_flag(flag.attr):
                        yield Change(f"{name} without {flag.attr}", (replace(flag, "0"),))
            case ast.keyword(arg="follow_symlinks", value=value):
                yield Change("symbolic links are followed", (replace(value, "True"),))
            case _:
                pass


class Decisions:
    """Rules on what an operation decides by what it looks at."""

    def __init__(self, acts: Acts) -> None:
        self._acts = acts

    def links(self, function: Function) -> Iterator[Change]:
        """A file has one name, or is the one that it was, whatever is there; but where that is only
        told.
        """
        changes = Deed.CHANGE in self._acts.deeds(function, function.node)
        if not changes and not self._acts.is_of_an_operation(function):
            return
        for node in function.nodes:
            match node:
                case ast.Compare(left, [ast.Gt() | ast.Eq() as op], [ast.Constant(1)]):
                    if ast.unparse(left).endswith(("links", "st_nlink", "names")):
                        text = str(isinstance(op, ast.Eq))
                        yield Change(f"{said(node)} is {text}", (replace(node, text),))
                case ast.Call(func=ast.Attribute(attr="samestat")):
                    yield Change(f"{said(node)} is True", (replace(node, "True"),))
                case _:
                    pass

    def guards(self, function: Function) -> Iterator[Change]:
        """What an operation looks at, and ends for, is not so; what it looks at is so."""
        if not self._acts.is_of_an_operation(function):
            return
        passed = {
            node
            for guarded in _guarded(function)
            for handler in guarded.handlers
            for node in own_nodes(handler)
        }
        for node in function.nodes:
            match node:
                case ast.If(test=test, body=body, orelse=orelse) if node not in passed:
                    decides = (orelse or _ends(body[-1])) and not flushes(function, test)
                    if decides and self._looks(function, test):
                        text = f"({ast.unparse(test)}) and False"
                        yield Change(f"if {said(test)}: is not so", (replace(test, text),))
                case ast.IfExp(test=test) if self._looks(function, test):
                    yield Change(f"{said(test)} is so", (replace(test, "True"),))
                case _:
                    pass

    def operands(self, function: Function) -> Iterator[Change]:
        """One of several conditions of an operation is left out."""
        if not self._acts.is_of_an_operation(function):
            return
        for condition in _conditions(function):
            for node in ast.walk(condition):
                for value in node.values if isinstance(node, ast.BoolOp) else ():
                    if self._looks(function, value) and not _binds(value):
                        text = str(isinstance(node.op, ast.And))
                        yield Change(f"{said(value)} is {text}", (replace(value, text),))

    def _looks(self, function: Function, node: ast.AST) -> bool:
        deeds = self._acts.deeds(function, node)
        return Deed.LOOK in deeds and Deed.CHANGE not in deeds


def steps(function: Function) -> Iterator[Change]:
    """A step that is made of others is left out."""
    for node in function.nodes if function.is_durable else ():
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.YieldFrom):
            yield Change(f"without {said(node)}", (cut(node, "pass"),))


def _conditions(function: Function) -> Iterator[ast.expr]:
    """What it decides by; of a function that says yes or no, also what it says."""
    is_answer = ast.unparse(getattr(function.node, "returns", None) or ast.Constant(None))
    for node in function.nodes:
        match node:
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                yield test
            case ast.comprehension(ifs=ifs):
                yield from ifs
            case ast.Return(value=ast.expr() as value) if is_answer == "bool":
                yield value
            case _:
                pass


def _binds(condition: ast.expr) -> bool:
    return any(isinstance(node, ast.NamedExpr) for node in ast.walk(condition))


def _guarded(function: Function) -> Iterator[ast.Try]:
    """What is tried, and flushes."""
    for node in function.nodes:
        if isinstance(node, ast.Try) and any(flushes(function, each) for each in node.body):
            yield node


def _is_of_files(handler: ast.ExceptHandler) -> bool:
    kind = handler.type
    kinds = kind.elts if isinstance(kind, ast.Tuple) else [kind]
    return any(each is None or ast.unparse(each) in _OF_FILES for each in kinds)


def _syncs(statement: ast.stmt) -> bool:
    return any(
        isinstance(node, ast.Attribute) and node.attr in SYNCS for node in own_nodes(statement)
    )


def _raises(statement: ast.stmt) -> bool:
    return any(isinstance(node, ast.Raise) for node in (statement, *own_nodes(statement)))


def _ends(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break)


def _is_flag(name: str) -> bool:
    return name.startswith("O_") and name not in _NEEDED_FLAGS


def _is_of_claim(value: ast.expr) -> bool:
    """Whether a claim's file is stamped, or flushed; to end its lock is another matter."""
    text = ast.unparse(value)
    return "claim.descriptor" in text and ".unlock(" not in text
