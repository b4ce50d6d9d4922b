"""A rule that takes out each flush that is asked for or made, or a part of it: a flush that is
added is one more mutant by itself.
"""

import ast
from collections.abc import Iterator

from mutants.acts import SYNCS
from mutants.syntax import UNFLUSHED, Change, Function, replace, said

PARTS = ("files", "stamps", "folders")
NAMED_FOLDERS = ("folders", "ends")


def flushes_left_out(function: Function) -> Iterator[Change]:
    """Nothing is flushed, or all but a part; and folders in the other order."""
    if isinstance(function.node, ast.Module):
        return
    yielded = {node.value for node in function.nodes if isinstance(node, ast.Yield)}
    for node in function.nodes:
        match node:
            case ast.Yield(value=ast.Name(id="LISTS")):
                pass  # It asks for no flush.
            case ast.Yield(value=ast.expr() as value) if function.is_durable:
                text = f"({ast.unparse(value)}, {UNFLUSHED}())[1]"
                yield _change(f"flush nothing for {said(value)}", value, text)
            case ast.Call(
                func=ast.Name(id="Flush") | ast.Attribute(attr="_replace"), keywords=[_, *_]
            ):
                yield from _without_parts(node, is_yielded=node in yielded)
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Tuple() as value):
                if name in NAMED_FOLDERS:
                    yield from _without_folders(value)
            case ast.Call(func=ast.Attribute(attr=attribute)) if attribute in SYNCS:
                text = "0" if attribute == "syncfs" else "None"
                yield _change(f"leave out {said(node)}", node, text)
            case _:
                pass


def _change(what: str, node: ast.expr, text: str) -> Change:
    return Change(what, (replace(node, text),))


def _without_parts(call: ast.Call, is_yielded: bool) -> Iterator[Change]:
    for keyword in call.keywords:
        if keyword.arg not in PARTS:
            continue
        rest = [ast.unparse(other) for other in call.keywords if other is not keyword]
        text = f"{ast.unparse(call.func)}({', '.join([*map(ast.unparse, call.args), *rest])})"
        # Else it is the mutant that flushes nothing.
        if rest or isinstance(call.func, ast.Attribute) or not is_yielded:
            yield _change(f"flush no {keyword.arg} of {said(call)}", call, text)
        if isinstance(keyword.value, ast.Tuple):
            yield from _without_folders(keyword.value)


def _without_folders(folders: ast.Tuple) -> Iterator[Change]:
    if len(folders.elts) < 2:
        return
    for part in folders.elts:
        yield _change(f"flush not {said(part)}", folders, _tuple(folders.elts, part))
    yield _change("flush the folders the other way round", folders, _tuple(folders.elts[::-1]))


def _tuple(parts: list[ast.expr], missing: ast.expr | None = None) -> str:
    return "(" + "".join(f"{ast.unparse(part)}, " for part in parts if part is not missing) + ")"
