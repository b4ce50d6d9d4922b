"""Which tests call a function."""

import json
import os
import subprocess
import sys
from pathlib import Path

from mutants.callers import FILE, Callers
from mutants.syntax import Mutant

CHECKOUT = Path(__file__).parents[2]


def test_the_tests_that_call_a_function_are_told_the_quickest_first() -> None:
    lines = [
        json.dumps(["slow", 2.0, ["mq/a.py f", "mq/a.py Thing.g"]]),
        json.dumps(["quick", 0.1, ["mq/a.py f"]]),
    ]
    callers = Callers(lines)
    assert callers.of(Mutant("", "mq/a.py", "", "f")) == ["quick", "slow"]
    assert callers.of(Mutant("", "mq/a.py", "", "Thing.g")) == ["slow"]
    assert callers.of(Mutant("", "mq/b.py", "", "f")) == []


def test_a_run_with_the_plugin_keeps_what_each_test_has_called(tmp_path: Path) -> None:
    test = "tests/store/disk/test_files.py::test_only_a_folder_is_opened_as_one"
    words = ["-q", "-p", "no:cacheprovider", "-p", "mutants.callers", test]
    env = os.environ | {FILE: str(tmp_path / "callers"), "PYTHONPATH": str(CHECKOUT / "tests")}
    subprocess.run([sys.executable, "-m", "pytest", *words], cwd=CHECKOUT, env=env, check=True)
    callers = Callers.read(tmp_path / "callers")
    assert callers.of(Mutant("", "mq/store/disk/files.py", "", "Files.open_folder")) == [test]
