"""Rules that put steps around a flush in another order."""

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mutants.acts import Acts, Deed, flushes
from mutants.syntax import (
    Change,
    Function,
    FunctionNode,
    blocks,
    brief,
    cut,
    insert_before,
    insert_behind,
    own_nodes,
    text_of,
)

_BLOCKS = ("body", "orelse", "finalbody")


@dataclass(frozen=True)
class _Site:
    """A statement that flushes, with the blocks that it is in, from the inner one outwards, and
    where in each.
    """

    statement: ast.stmt
    path: tuple[tuple[ast.AST, list[ast.stmt], int], ...]


class Orders:
    """The rules; what a statement does is looked up in `acts`."""

    def __init__(self, acts: Acts) -> None:
        self._acts = acts

    def later(self, function: Function) -> Iterator[Change]:
        """What comes next after a flush goes before it; and the next change of files, where that is
        another.
        """
        for site in _sites(function):
            is_return = isinstance(site.statement, ast.Return)
            if is_return or self._acts.is_the_end(function, site.statement):
                continue
            for count, (before, skipped, step) in enumerate(self._next(function, site)):
                is_change = self._changes(function, step) and not flushes(function, step)
                if count == 0 or is_change:
                    yield from _moved_up(function, before, skipped, step)
                if is_change:
                    break

    def earlier(self, function: Function) -> Iterator[Change]:
        """The last change of files before a flush goes behind it."""
        for site in _sites(function):
            step, skipped = self._previous(function, site)
            # Two flushes the other way round are `later`'s.
            if step is not None:
                yield from _moved_down(function, site.statement, step, skipped)

    def looks(self, function: Function) -> Iterator[Change]:
        """What is looked at once a flush is done is looked at before it."""
        for site in _sites(function):
            _, block, at = site.path[0]
            looked = []
            for statement in block[at + 1 :]:
                if self._acts_at(function, statement):
                    break
                looked.append(statement)
            while looked and not self._is_check(function, looked[-1]):
                looked.pop()
            if looked and not _bound(site.statement) & set().union(*map(_used, looked)):
                text = text_of(function.source, site.statement)
                edits = (cut(site.statement), insert_behind(looked[-1], text))
                yield Change(f"{brief(site.statement)} behind {brief(looked[-1])}", edits)

    def _next(
        self, function: Function, site: _Site
    ) -> Iterator[tuple[ast.stmt, list[ast.stmt], ast.stmt]]:
        """The statements that act from here on: before which each may go, the flush or a loop that
        it lies in, and those that are passed over on the way.
        """
        skipped: list[ast.stmt] = []
        before = site.statement
        if isinstance(before, ast.If):
            for statement in before.body:
                if self._acts_at(function, statement):
                    yield before, list(skipped), statement
                skipped.append(statement)
            skipped = []
        for parent, block, at in site.path:
            for statement in block[at + 1 :]:
                if self._acts_at(function, statement) and not _leaves(statement):
                    yield before, list(skipped), statement
                if isinstance(statement, ast.Return | ast.Raise | ast.Continue | ast.Break):
                    return
                skipped.append(statement)
            if isinstance(parent, ast.For | ast.While) and block is parent.body:
                before, skipped = parent, []
            elif not _goes_on_behind(parent, block):
                return

    def _previous(self, function: Function, site: _Site) -> tuple[ast.stmt | None, list[ast.stmt]]:
        """The last change before it, and what lies between the two."""
        skipped: list[ast.stmt] = []
        for parent, block, at in site.path:
            for statement in reversed(block[:at]):
                if self._changes(function, statement) and not flushes(function, statement):
                    return statement, skipped
                skipped.insert(0, statement)
            if not isinstance(parent, ast.Try | ast.With) or block is not parent.body:
                return None, skipped
        return None, skipped

    def _changes(self, function: Function, statement: ast.stmt) -> bool:
        """Whether it changes files; what is cleaned up after an error is no matter."""
        if isinstance(statement, FunctionNode) or _is_partial(statement):
            return False
        inner = [each for name in _BLOCKS for each in getattr(statement, name, [])]
        if any(self._changes(function, each) for each in inner):
            return True
        own = ast.iter_child_nodes(statement)
        heads = [each for each in own if each not in inner and not _is_handler(each)]
        return any(Deed.CHANGE in self._acts.deeds(function, each) for each in heads)

    def _acts_at(self, function: Function, statement: ast.stmt) -> bool:
        is_flush = not isinstance(statement, FunctionNode) and flushes(function, statement)
        return is_flush or self._changes(function, statement)

    def _is_check(self, function: Function, statement: ast.stmt) -> bool:
        """Whether it looks at the disk and decides."""
        if isinstance(statement, FunctionNode):
            return False
        return Deed.LOOK in self._acts.deeds(function, statement)


def _is_handler(node: ast.AST) -> bool:
    return isinstance(node, ast.ExceptHandler)


def _is_partial(statement: ast.stmt) -> bool:
    """Whether a call is only prepared."""
    match statement:
        case ast.Assign(value=ast.Call(func=ast.Name(id="partial"))):
            return True
        case _:
            return False


def _sites(function: Function) -> Iterator[_Site]:
    """The innermost statements that flush."""
    if not isinstance(function.node, ast.Module) and flushes(function, function.node):
        yield from _in_blocks(function, function.node, ())


def _in_blocks(
    function: Function, node: ast.AST, path: tuple[tuple[ast.AST, list[ast.stmt], int], ...]
) -> Iterator[_Site]:
    for block in blocks(node):
        for at, statement in enumerate(block):
            if isinstance(statement, FunctionNode | ast.ClassDef):
                continue
            inner = ((node, block, at), *path)
            is_simple = not any(blocks(statement))
            flushed = statement if is_simple else getattr(statement, "test", None)
            if flushed is not None and flushes(function, flushed):
                yield _Site(statement, inner)
            yield from _in_blocks(function, statement, inner)


def _goes_on_behind(parent: ast.AST, block: list[ast.stmt]) -> bool:
    """Whether what follows the parent comes right after the block's end."""
    match parent:
        case ast.Try():
            return block is parent.body or block is parent.orelse
        case ast.With() | ast.If():
            return True
        case _:
            return False


def _moved_up(
    function: Function, flush: ast.stmt, skipped: Sequence[ast.stmt], step: ast.stmt
) -> Iterator[Change]:
    """With what it needs of the statements between the two."""
    stays = _bound(flush)
    moved: list[ast.stmt] = []
    for statement in skipped:
        if _used(statement) & stays or _leaves(statement):
            stays |= _bound(statement)
        else:
            moved.append(statement)
    needed = _needed(moved, _used(step))
    if _used(step) & (stays - _bound_by(needed)) or _bound(step) & _used(flush):
        return
    texts = [text_of(function.source, each) for each in needed]
    edits = [cut(each) for each in needed]
    match step:
        case ast.Return(value=ast.expr() as value):
            texts.append(f"answer = {ast.unparse(value)}")
            edits.append(cut(step, "return answer"))
        case _:
            texts.append(text_of(function.source, step))
            edits.append(cut(step, "pass"))
    edits.append(insert_before(flush, "\n".join(text.rstrip("\n") for text in texts)))
    yield Change(f"{brief(step)} before {brief(flush)}", tuple(edits))


def _moved_down(
    function: Function, flush: ast.stmt, step: ast.stmt, skipped: Sequence[ast.stmt]
) -> Iterator[Change]:
    """With what needs it of the statements between the two."""
    if isinstance(flush, ast.Return | ast.If):
        return
    bound, moved = _bound(step), [step]
    for statement in skipped:
        if _used(statement) & bound:
            bound |= _bound(statement)
            moved.append(statement)
    rest = [statement for statement in (*skipped, flush) if statement not in moved]
    if _used(flush) & bound or any(_used(each) & _bound_by(rest) for each in moved):
        return
    if any(_leaves(each) for each in moved[1:]):
        return
    text = "\n".join(text_of(function.source, each).rstrip("\n") for each in moved)
    edits = [cut(each, "pass") for each in moved] + [insert_behind(flush, text)]
    yield Change(f"{brief(step)} behind {brief(flush)}", tuple(edits))


def _needed(statements: Sequence[ast.stmt], names: set[str]) -> list[ast.stmt]:
    needed: list[ast.stmt] = []
    for statement in reversed(statements):
        if _bound(statement) & names:
            names = names | _used(statement)
            needed.insert(0, statement)
    return needed


def _bound_by(statements: Sequence[ast.stmt]) -> set[str]:
    return set().union(*map(_bound, statements))


def _bound(statement: ast.stmt) -> set[str]:
    if isinstance(statement, FunctionNode):
        return {statement.name}
    return {
        node.id
        for node in own_nodes(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }


def _used(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _leaves(statement: ast.stmt) -> bool:
    """Whether a statement with others in it may end what comes behind it."""
    if not any(blocks(statement)) or isinstance(statement, FunctionNode):
        return False
    return any(
        isinstance(node, ast.Return | ast.Continue | ast.Break) for node in own_nodes(statement)
    )
