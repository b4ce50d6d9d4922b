"""Makes `mq/client/sync.py`, the client for threads, from the one for event loops.

`python tests/harness/sync_client.py` writes it; a test compares. Each class of it stands before one
of the asynchronous client's, with its methods, their signatures and docstrings:

- A method that uses only public methods of its own is the same, without `await`.
- Any other runs the asynchronous one in the background event loop (`Portal`).
- An attribute with a type and a docstring is a property.
"""

import ast
import copy
import re
import subprocess
import sys
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

CLIENT = Path(__file__).parents[2] / "mq" / "client"
TARGET = CLIENT / "sync.py"
COMMAND = "python tests/harness/sync_client.py"

# Each class, and where its methods are, in the order in which they are shown.
SOURCES = {
    "Message": [("message", "AsyncMessage")],
    "Consumer": [("consuming.consumer", "AsyncConsumer")],
    "Queue": [
        ("queue", "AsyncQueue"),
        ("publishing", "Publishing"),
        ("messages", "Messages"),
        ("schedules", "Schedules"),
        ("shovel", "Shovel"),
        ("sending", "OfQueue"),
    ],
    "Client": [("client", "AsyncClient")],
}
# What a consumer does with a message before a program has it.
LEFT_OUT = {("AsyncMessage", "begin"), ("AsyncMessage", "came_by"), ("AsyncMessage", "settler")}
KEPT_BASES = {"Fetched"}
NAMES = {
    "AsyncMessage": "Message",
    "AsyncConsumer": "Consumer",
    "AsyncQueue": "Queue",
    "AsyncClient": "Client",
    "AsyncIterator": "Iterator",
    "GivenBody": "Body",
    "StopAsyncIteration": "StopIteration",
}
SPECIAL = {"__aiter__": "__iter__", "__anext__": "__next__"}
SPECIAL |= {"__aenter__": "__enter__", "__aexit__": "__exit__"}
ENDS = {"Client": "self._portal.close()", "Consumer": "self._portal.run_last(self._inner.close)"}

# What is not the same in an event loop and in threads.
PHRASES = {
    "for the tasks of one event loop. Use": "for many threads. Use",
    "several tasks may take messages of one": "several threads may take messages of one",
    "a file that is open for reading bytes, or an async iterable, which are streamed": (
        "a file that is open for reading bytes, which is streamed"
    ),
    "consumers and connections, within a bounded time. May be called again; any other call then "
    "raises NotUsable.": (
        "consumers, connections and thread, within a bounded time. May be called again; any other "
        "call then raises NotUsable, also one that another thread is waiting for."
    ),
    "options out of bounds, and unusable files.": (
        "options out of bounds, and unusable files.\n\n"
        "Its calls run in an event loop of a background thread: a call waits for its end, and an "
        "interrupt of the calling thread cancels it."
    ),
}
PATTERNS = {r"\basync (for|with)\b": r"\1", r"\bawait ": "", r"\ban? Async": "a Async"}
PATTERNS |= {rf"\b{name}\b": instead for name, instead in NAMES.items()}
WIDTH = 100

HEAD = f'''"""The client for threads. Generated from the one for event loops: change that, and run
`{COMMAND}`.
"""

'''


@dataclass
class Source:
    """A module of the asynchronous client."""

    name: str
    tree: ast.Module

    @classmethod
    def of(cls, name: str) -> "Source":
        path = CLIENT.joinpath(*name.split(".")).with_suffix(".py")
        return cls(name, ast.parse(path.read_text(encoding="utf-8")))

    def class_(self, name: str) -> ast.ClassDef:
        [found] = [e for e in self.tree.body if isinstance(e, ast.ClassDef) and e.name == name]
        return found

    def origins(self) -> Iterator[tuple[str, str]]:
        """Each name that is known at its top, and the import that brings it."""
        for node in self.tree.body:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    said = alias.name + (f" as {alias.asname}" if alias.asname else "")
                    yield alias.asname or alias.name, f"from {node.module} import {said}"
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                yield node.name, f"from mq.client.{self.name} import {node.name}"
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                yield node.target.id, f"from mq.client.{self.name} import {node.target.id}"


Method = ast.FunctionDef | ast.AsyncFunctionDef


class _InThreads(ast.NodeTransformer):
    """Asynchronous syntax and names, as they are in threads."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(NAMES.get(node.id, node.id), node.ctx)

    def visit_For(self, node: ast.For) -> ast.AST:
        self.generic_visit(node)
        [first, *rest] = node.body
        if not rest and ast.unparse(first) == f"yield {ast.unparse(node.target)}":
            return ast.Expr(ast.YieldFrom(node.iter))
        return node

    def visit_Await(self, node: ast.Await) -> ast.AST:
        call = node.value
        assert isinstance(call, ast.Call), ast.unparse(node)
        if isinstance(call.func, ast.Name) and ast.unparse(call.args[0]) == "self":
            # A function of the asynchronous object.
            call.args[0] = ast.parse("self._inner", mode="eval").body
            return ast.parse(f"self._portal.run(lambda: {ast.unparse(call)})", mode="eval").body
        return self.visit(call)


def documentation(node: ast.AST, indent: str) -> str:
    """A docstring for threads."""
    first = node if isinstance(node, ast.Expr) else getattr(node, "body", [None])[0]
    if not (isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)):
        return ""
    text = str(first.value.value)
    plain = "\n\n".join(" ".join(each.split()) for each in text.strip().split("\n\n"))
    changed = plain
    for phrase, instead in PHRASES.items():
        if phrase in changed:
            changed = changed.replace(phrase, instead)
            _used.add(phrase)
    for pattern, instead in PATTERNS.items():
        changed = re.sub(pattern, instead, changed)
    return f'{indent}"""{text if changed == plain else _filled(changed, indent)}"""'


def _filled(text: str, indent: str) -> str:
    parts = [
        textwrap.fill(each, WIDTH - len(indent), break_long_words=False, break_on_hyphens=False)
        for each in ('"""' + text).split("\n\n")
    ]
    lines = "\n\n".join(parts).removeprefix('"""').splitlines()
    # The end of one line has the quotes beside it, of several they have their own.
    if len(lines) == 1 and len(indent) + len(lines[0]) + 6 <= WIDTH:
        return lines[0]
    return "\n".join([lines[0], *(f"{indent}{each}".rstrip() for each in lines[1:]), indent])


_used: set[str] = set()


def generated() -> str:
    """The module's text."""
    _used.clear()
    imports = {"from mq.client.portal import Portal"}
    classes = []
    for target, named in SOURCES.items():
        sources = [(Source.of(module), name) for module, name in named]
        parts = [_shown(target, source.class_(name)) for source, name in sources]
        parts[0] = [*_beginning(target, *sources[0]), *parts[0]]
        for (source, _), lines in zip(sources, parts, strict=True):
            imports |= _imports(lines, source)
        classes.append("\n".join(line for lines in parts for line in lines))
    unused = set(PHRASES) - _used
    assert not unused, f"no docstring says any more: {unused}"
    return _formatted("\n".join([HEAD, *imports, *classes]))


def _beginning(target: str, source: Source, inner: str) -> list[str]:
    """A class, its docstring, and how it is made."""
    class_ = source.class_(inner)
    bases = [ast.unparse(each) for each in class_.bases if ast.unparse(each) in KEPT_BASES]
    lines = [f"class {target}({', '.join(bases)}):", documentation(class_, "    "), ""]
    if target == "Client":
        [init] = [each for each in class_.body if getattr(each, "name", "") == "__init__"]
        assert isinstance(init, ast.FunctionDef)
        return [
            *lines,
            "    " + _signature(init, "__init__"),
            f"        self._inner = {inner}({_passed(init)})",
            "        self._portal = Portal(self._inner.close)",
        ]
    return [
        *lines,
        '    __slots__ = ("_inner", "_portal")',
        "",
        f"    def __init__(self, inner: {inner}, portal: Portal) -> None:",
        *(["        super().__init__(inner.queue, inner.row)"] if bases else []),
        "        self._inner = inner",
        "        self._portal = portal",
    ]


def _shown(target: str, class_: ast.ClassDef) -> list[str]:
    """A class's properties and methods."""
    lines: list[str] = []
    for node, after in zip(class_.body, [*class_.body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(after, ast.Expr):
            lines += ["", *_property(node, after)]
        elif isinstance(node, Method) and _is_shown(class_.name, node):
            lines += ["", *_method(target, node)]
    return lines


def _is_shown(of: str, node: Method) -> bool:
    if (of, node.name) in LEFT_OUT or node.name == "__init__":
        return False
    return not node.name.startswith("_") or node.name in SPECIAL or node.name == "__repr__"


def _property(node: ast.AnnAssign, said: ast.Expr) -> list[str]:
    name, kind = ast.unparse(node.target), ast.unparse(node.annotation)
    return [
        "    @property",
        f"    def {name}(self) -> {kind}:",
        documentation(said, "        "),
        f"        return self._inner.{name}",
    ]


def _method(target: str, node: Method) -> list[str]:
    name = SPECIAL.get(node.name, node.name)
    said = documentation(node, "        ")
    lines = ["    " + _signature(node, name), *([said] if said else [])]
    statements = node.body[1:] if said else node.body
    if node.name == "close":
        made = [ENDS[target]]
    elif _is_of_public_methods(statements):
        made = [
            line
            for each in statements
            for line in ast.unparse(_InThreads().visit(copy.deepcopy(each))).splitlines()
        ]
    else:
        made = _delegation(node)
    return [*lines, *(f"        {line}" for line in made)]


def _is_of_public_methods(statements: list[ast.stmt]) -> bool:
    """Whether nothing private of its own is used, nor what only an event loop has."""
    nodes = [each for statement in statements for each in ast.walk(statement)]
    return not any(
        isinstance(each, ast.AsyncFor | ast.AsyncWith | ast.AsyncFunctionDef)
        or (
            isinstance(each, ast.Attribute)
            and ast.unparse(each.value) == "self"
            and each.attr.startswith("_")
        )
        for each in nodes
    )


def _delegation(node: Method) -> list[str]:
    taken = _taken_before(node)
    given = _passed(node, dict.fromkeys(taken, "taken"))
    call = f"self._inner.{node.name}({given})"
    returns = "None" if node.returns is None else ast.unparse(node.returns)
    if returns.startswith("AsyncIterator"):
        return [f"return self._portal.iterate({call})"]
    if isinstance(node, ast.AsyncFunctionDef):
        begin = f"lambda: {call}" if given else f"self._inner.{node.name}"
        call = f"self._portal.run({begin})"
    lines = [f"taken = list({each})" for each in taken]
    if returns == "None":
        return [*lines, call]
    if returns == "Self":
        return [*lines, call, "return self"]
    for name in ("AsyncMessage", "AsyncConsumer", "AsyncQueue"):
        if returns == name:
            return [*lines, f"return {NAMES[name]}({call}, self._portal)"]
        if returns == f"{name} | None":
            found = f"None if found is None else {NAMES[name]}(found, self._portal)"
            return [*lines, f"found = {call}", f"return {found}"]
        if returns == f"list[{name}]":
            each = f"{NAMES[name]}(each, self._portal)"
            return [*lines, f"return [{each} for each in {call}]"]
    return [*lines, f"return {call}"]


def _taken_before(node: Method) -> list[str]:
    """Parameters that are iterables: they are gone through in the caller's thread, so that what
    makes them may use this client.
    """
    every = [*node.args.args, *node.args.kwonlyargs]
    kinds = {each.arg: ast.unparse(each.annotation) for each in every if each.annotation}
    return [name for name, kind in kinds.items() if kind.startswith("Iterable[")]


def _passed(node: Method, renamed: Mapping[str, str] = MappingProxyType({})) -> str:
    """The arguments as they are passed on."""
    given = [renamed.get(each.arg, each.arg) for each in node.args.args[1:]]
    if node.args.vararg is not None:
        given.append(f"*{node.args.vararg.arg}")
    given += [f"{each.arg}={renamed.get(each.arg, each.arg)}" for each in node.args.kwonlyargs]
    if node.args.kwarg is not None:
        given.append(f"**{node.args.kwarg.arg}")
    return ", ".join(given)


def _signature(node: Method, name: str) -> str:
    made = _InThreads().visit(copy.deepcopy(node.args))
    returns = ast.unparse(_InThreads().visit(copy.deepcopy(node.returns)))
    return f"def {name}({ast.unparse(made)}) -> {returns}:"


def _imports(lines: list[str], source: Source) -> set[str]:
    """Those of the source's names that the lines use."""
    known = dict(source.origins())
    known |= {"Iterator": "from collections.abc import Iterator"}
    known |= {"Body": "from mq.client.bodies import Body"}
    tree = ast.parse(textwrap.dedent("\n".join(lines)))
    names = {each.id for each in ast.walk(tree) if isinstance(each, ast.Name)}
    return {known[name] for name in names if name in known}


def _formatted(text: str) -> str:
    """As the project has its code."""
    ruff = [sys.executable, "-m", "ruff"]
    for words in (["check", "--select", "I", "--fix", "-q"], ["format", "-q"]):
        command = [*ruff, *words, "--stdin-filename", str(TARGET), "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        text = done.stdout
    return text


if __name__ == "__main__":
    TARGET.write_text(generated(), encoding="utf-8")
