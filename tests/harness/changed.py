"""`python -m harness.changed [BASE]`: what a change asks to be checked, for `deploy/check changed`.

Prints a JSON object: the changed Python files, the modules of tests to run, the most relevant
first, the modules beyond a limit, and the parts of the certificate that the change asks for. The
change is everything since the branch left BASE (`main`), and what is not committed yet.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from harness.parts import asked_by
from harness.tiers import in_check

TOP = Path(__file__).parents[2]
PACKAGES = ("mq", "mq_mover", "mq_reaper")
FLOORS = "tests/test_floors.py"
SMOKE = "tests/conformance/test_smoke.py"
# Half a minute has no room for more; collecting them takes part of it.
MODULES_MAX = 50
# Where a module's word is not the one that the conformance tests have for the same thing.
ENDPOINTS = {
    "batch": "split",
    "batches": "split",
    "caching": "memory",
    "claim": "fetch",
    "extend": "reschedule",
    "remove": "delete",
    "release": "reschedule",
    "waiter": "wait",
    "websocket": "consume",
}


def changed_files(base: str) -> list[str]:
    """Files that were changed since the branch left `base`, also those not committed; none that are
    gone.
    """
    left = _git("merge-base", base, "HEAD").strip()
    names = [*_git("diff", "--name-only", left).splitlines()]
    names += _git("ls-files", "--others", "--exclude-standard").splitlines()
    return sorted({name for name in names if (TOP / name).is_file()})


def _git(*words: str) -> str:
    done = subprocess.run(("git", *words), cwd=TOP, capture_output=True, text=True, check=True)
    return done.stdout


class Project:
    """Which module imports which, of the product and of the tests."""

    def __init__(self) -> None:
        self.product = dict(_modules(PACKAGES))
        self.tests = {
            path.relative_to(TOP).as_posix(): path
            for path in sorted((TOP / "tests").rglob("test_*.py"))
        }
        self.harness = {
            ".".join(path.relative_to(TOP / "tests").with_suffix("").parts): path
            for path in (TOP / "tests/harness").rglob("*.py")
        }
        self._known: dict[Path, frozenset[str]] = {}

    def imports(self, path: Path) -> frozenset[str]:
        """The modules that a file names in its imports."""
        if path not in self._known:
            self._known[path] = frozenset(_imported(ast.parse(path.read_text(encoding="utf-8"))))
        return self._known[path]

    def importers(self, module: str) -> list[str]:
        """Modules of the product that import this one themselves."""
        return [name for name, path in self.product.items() if module in self.imports(path)]

    def tests_importing(self, module: str) -> list[str]:
        """Modules of tests that import this one themselves."""
        return [name for name, path in self.tests.items() if module in self.imports(path)]


def _modules(packages: Iterable[str]) -> Iterator[tuple[str, Path]]:
    for package in packages:
        for path in sorted((TOP / package).rglob("*.py")):
            parts = path.relative_to(TOP).with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tests_of(project: Project, changed: Iterable[str]) -> list[str]:
    """Modules of tests that a change asks for, the most relevant first."""
    mirrored: list[str] = []
    importing: list[str] = []
    endpoints: list[str] = []
    nearby: list[str] = []
    by_path = {path.relative_to(TOP).as_posix(): name for name, path in project.product.items()}
    harness = {path.relative_to(TOP).as_posix(): name for name, path in project.harness.items()}
    own = [name for name in changed if name in project.tests]
    for name in changed:
        if name in by_path:
            module = by_path[name]
            mirrored += _mirrored(project, module)
            importing += project.tests_importing(module)
            endpoints += _conformance(project, module)
            for importer in project.importers(module):
                nearby += _conformance(project, importer)
                nearby += _mirrored(project, importer)
        elif name in harness:
            importing += project.tests_importing(harness[name])
    found = dict.fromkeys([FLOORS, *own, *mirrored, SMOKE, *endpoints, *importing, *nearby])
    return [name for name in found if in_check(name.removeprefix("tests/"))]


def _mirrored(project: Project, module: str) -> list[str]:
    """`tests/store/disk/test_flush.py`, and those with more words, of `mq.store.disk.flush`."""
    parts = module.split(".")
    inside = parts[1:] if parts[0] == "mq" else parts
    start = "/".join(["tests", *inside[:-1], f"test_{inside[-1]}" if inside else ""])
    return [name for name in project.tests if name.startswith((f"{start}.py", f"{start}_"))]


def _conformance(project: Project, module: str) -> list[str]:
    """The tests over HTTP of the endpoints that share a word with a module's own name."""
    words = {ENDPOINTS.get(word, word) for word in module.rsplit(".", maxsplit=1)[-1].split("_")}
    found = []
    for name in project.tests:
        if name.startswith("tests/conformance/"):
            subject = Path(name).stem.removeprefix("test_").split("_")
            if any(_same(one, other) for one in words for other in subject):
                found.append(name)
    return found


def _same(one: str, other: str) -> bool:
    """Whether two words differ in their number alone."""
    return one.rstrip("s") == other.rstrip("s")


def main(words: list[str]) -> int:
    """Prints the choice."""
    changed = changed_files(words[0] if words else "main")
    tests = tests_of(Project(), changed)
    python = [name for name in changed if name.endswith(".py")]
    choice = {
        "python": python,
        "tests": tests[:MODULES_MAX],
        "left": tests[MODULES_MAX:],
        "parts": [part.name for part in asked_by(changed)],
    }
    print(json.dumps(choice))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
