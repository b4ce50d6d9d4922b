"""What `pip install 'mq[spark]'` brings is all that Spark and the jobs ask for."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from harness.spark import CHECKOUT, PATIENCE_S, environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from mq.model.clock import SystemClock
from mq.store.disk.files import Files
from mq.store.opening import open_root

# A load and a drain where nothing else can be imported that is installed here.
SCRIPT = """
import sys
from importlib.machinery import PathFinder
from pathlib import Path

ABSENT = set(sys.stdin.read().split())


class Rest(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in ABSENT:
            return super().find_spec(name, path, target)


sys.meta_path[sys.meta_path.index(PathFinder)] = Rest
import mq.spark
from mq.spark.jobs.drain import drain
from mq.spark.jobs.load import load

here = Path(sys.argv[1])
(here / "pizzas.csv").write_text("value\\nmargherita\\n")
spark = mq.spark.session()
loaded = load(spark, here / "root", here / "pizzas.csv", queue="orders", create=True)
drained = drain(spark, here / "root", ["orders"], here / "out")
print("TOLD", loaded.messages, drained.messages, "pytest" in ABSENT)
spark.stop()
"""


def brought() -> set[str]:
    """The distributions that a plain install and the extra `spark` bring, by name."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    open_ones = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    found: set[str] = set()
    while open_ones:
        wanted = Requirement(open_ones.pop())
        extras = wanted.extras or {""}
        if wanted.marker and not wanted.marker.evaluate({"extra": ""}):
            continue
        name = canonicalize_name(wanted.name)
        if name in found:
            continue
        found.add(name)
        for line in requires(name) or ():
            each = Requirement(line)
            if not each.marker or any(each.marker.evaluate({"extra": extra}) for extra in extras):
                each.marker = None
                open_ones.append(str(each))
    return found


@pytest.mark.certificate
@pytest.mark.timeout(2 * PATIENCE_S + 60)
def test_a_job_runs_on_what_the_extra_brings(tmp_path: Path) -> None:
    open_root(str(tmp_path / "root"), Files(), SystemClock())
    there = brought() | {"mq"}
    absent = [
        module
        for module, names in packages_distributions().items()
        if not {canonicalize_name(name) for name in names} & there
    ]
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        input=" ".join(absent),
        env=environment(),
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_S,
    )
    assert "TOLD 1 1 True" in ended.stdout, ended.stderr
