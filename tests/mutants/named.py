"""Mutants that no rule makes and that matter: logic of one place alone.

Each says where by a function's name, and by what its syntax has there: no text of the product. A
place that is not there is an error: who changes the function changes its mutant with it.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutants.syntax import Edit, Function, Mutant, cut, edited, functions, replace


@dataclass(frozen=True)
class Place:
    """The first of a function's pieces of syntax, of this kind, that has the name; a call is one of
    that name. It becomes a text, in which `{}` is what it was.
    """

    kind: type[ast.AST]
    name: str
    becomes: str


@dataclass(frozen=True)
class Named:
    """What goes wrong, and where."""

    wrong: str
    module: str
    function: str
    places: tuple[Place, ...]


def _call(wrong: str, module: str, function: str, called: str, becomes: str) -> Named:
    return Named(wrong, module, function, (Place(ast.Call, called, becomes),))


def _at(
    wrong: str, module: str, function: str, kind: type[ast.AST], name: str, becomes: str
) -> Named:
    return Named(wrong, module, function, (Place(kind, name, becomes),))


NAMED = (
    Named(
        "a published file is flushed before it is written",
        "mq/store/operations/publish.py",
        "_stage_all",
        (
            Place(ast.Call, "_stage", "_stage(root, draft, b'', has_room)"),
            Place(
                ast.Expr,
                "Flush",
                "{}\nfor each, of in opened.items():\n    root.files.write(each, bodies[of])",
            ),
        ),
    ),
    _call(
        "of two names a sideline's stays", "mq/store/core/two_names.py", "_others", "others", "()"
    ),
    _call(
        "what was known of a queue is never looked at again",
        "mq/store/core/facts.py",
        "Facts.of",
        "steady_s",
        "0.0",
    ),
    _call(
        "another delivery than the one that was chosen is moved",
        "mq/store/shovel/shovel.py",
        "_why_not",
        "is_as_chosen",
        "True",
    ),
    _at(
        "a bucket goes by settings that are known, not by those of the queues' lock",
        "mq/store/operations/expire.py",
        "_take_bucket",
        ast.Attribute,
        "configured",
        "root.facts.settings(queue)",
    ),
    _call(
        "an expired queue is deleted without a look under the lock",
        "mq/store/operations/queues.py",
        "delete_queue",
        "is_to_go",
        "True",
    ),
    _call(
        "a mover brings expired messages back",
        "mq/store/operations/redeliver.py",
        "_take_away",
        "message_expired",
        "False",
    ),
    _call(
        "a release of many brings back what was received often enough",
        "mq/store/operations/release.py",
        "_stays",
        "is_at_its_limit",
        "False",
    ),
    _call(
        "an id is made again for a time that was purged",
        "mq/broker/purger.py",
        "Purger.mark",
        "end_moment",
        "self._root.now_ms()",
    ),
    Named(
        "folders are flushed before the files in them",
        "mq/store/disk/flush.py",
        "FsyncFlusher.flush",
        (
            Place(ast.Call, "_sync_files", "self._folders.flush(asked)"),
            Place(ast.Call, "flush", "self._sync_files(todo)"),
        ),
    ),
    _call(
        "of changes in order the first is flushed, and not the last",
        "mq/store/disk/flush.py",
        "OrderedFolders.flush",
        "reversed",
        "list(asked)",
    ),
    _call(
        "what depends on changes of others is not flushed",
        "mq/store/disk/flush.py",
        "OrderedFolders.flush",
        "_sync_all",
        "None",
    ),
    _call(
        "an unchanged folder is flushed for changes of others",
        "mq/store/disk/flush.py",
        "OrderedFolders._sync_all",
        "touch",
        "None",
    ),
    _call(
        "what was stamped last is not flushed",
        "mq/store/disk/flush.py",
        "OrderedFolders._sync_last",
        "sync_each",
        "[]",
    ),
    _call(
        "the descriptor for syncfs is opened after the writes, and hears of no error",
        "mq/store/disk/flush.py",
        "_SyncfsSession.flush",
        "sync_file_system",
        "self._files.sync_file_system(self._files.open_folder(self._root))",
    ),
    _call(
        "what is forgotten goes from new/ while its idempotency key stands",
        "mq_mover/policies/sweeps.py",
        "ForgottenPublishes.act",
        "run_alone",
        "frozenset()",
    ),
    _at(
        "what is forgotten goes from new/ while its firing's link stands",
        "mq/store/keys/orphans.py",
        "",
        ast.Tuple,
        "FIRING",
        "(Keys.IDEMPOTENCY,)",
    ),
    _call(
        "a firing's link goes while its schedule is due still",
        "mq/store/keys/orphans.py",
        "is_orphan",
        "is_firing_over",
        "True",
    ),
    _call(
        "a journal ends while what it published is still staged",
        "mq/store/bulk/roll_forward.py",
        "roll_forward",
        "any",
        "(not journal.attempts and rolled.left)",
    ),
    _at(
        "a fold goes whole though some of it was purged",
        "mq/store/bulk/folds.py",
        "_move_whole",
        ast.Compare,
        "first_ms",
        "mark.ms > 0",
    ),
    _at(
        "a fold goes whole to a queue of another shape",
        "mq/store/bulk/folds.py",
        "_move_whole",
        ast.BoolOp,
        "shape_now",
        "not found",
    ),
    _at(
        "a firing's message shows though its schedule has gone on",
        "mq/store/operations/publish.py",
        "_show_linked.show",
        ast.Expr,
        "look_again",
        "pass",
    ),
    _at(
        "what is next is written before the message is published",
        "mq/store/schedules/firing.py",
        "fire",
        ast.Assign,
        "_draft",
        "{}\nyield from rearm(root, [Firing(queue, name, kept.version, due_ms, draft.id)])",
    ),
    _at(
        "of two names the earlier one goes though the later one has gone meanwhile",
        "mq/store/audit/repair.py",
        "_unlink_earlier",
        ast.BoolOp,
        "there",
        "False",
    ),
    _at(
        "of two names the earlier one goes though it is another file by then",
        "mq/store/audit/repair.py",
        "_unlink_earlier",
        ast.BoolOp,
        "here",
        "False",
    ),
    _call(
        "what is set aside is not looked at again under its lock",
        "mq/store/audit/repair.py",
        "set_aside",
        "is_wrong",
        "True",
    ),
)


def made_by_name(checkout: Path) -> Iterator[Mutant]:
    """The mutants of `NAMED`."""
    for named in NAMED:
        source = (checkout / named.module).read_text()
        found = [each for each in functions(named.module, source) if each.name == named.function]
        assert len(found) == 1, f"{named.module} has no function {named.function}"
        edits = tuple(_edit(found[0], place) for place in named.places)
        name = f"{named.module} {named.function}".strip() + f": {named.wrong}"
        yield Mutant(name, named.module, edited(source, edits), named.function)


def _edit(function: Function, place: Place) -> Edit:
    for node in function.nodes:
        if isinstance(node, place.kind) and _has(node, place.name):
            text = place.becomes.replace("{}", ast.unparse(node))
            if isinstance(node, ast.expr):
                return replace(node, text)
            assert isinstance(node, ast.stmt | ast.ExceptHandler)
            return cut(node, text)
    raise AssertionError(f"{function.name} has no {place.kind.__name__} with {place.name}")


def _has(node: ast.AST, name: str) -> bool:
    if isinstance(node, ast.Call):
        return _name(node.func) == name
    return any(_name(each) == name for each in ast.walk(node))


def _name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
