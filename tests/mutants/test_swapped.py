"""A function's code is exchanged where it is imported already."""

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from mutants.swapped import swap

SOURCE = """
import contextlib

LIMIT = 1

def plain():
    return 1

@contextlib.contextmanager
def held():
    yield 1

class Thing:
    @property
    def size(self):
        return 1

    def outer(self):
        def inner():
            return 1
        return inner()
"""


@pytest.fixture
def module(tmp_path: Path) -> Iterator[ModuleType]:
    made = ModuleType("swapped_example")
    exec(SOURCE, vars(made))
    sys.modules[made.__name__] = made
    yield made
    del sys.modules[made.__name__]


def test_functions_methods_and_what_is_decorated_become_others_for_all_who_have_them(
    module: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "swapped_example.py").write_text(SOURCE.replace(" 1\n", " 2\n"))
    had = module.plain
    for function in ("plain", "held", "Thing.size", "Thing.outer.inner"):
        assert swap(tmp_path, "swapped_example.py", function)
    thing = module.Thing()
    with module.held() as held:
        assert (had(), held, thing.size, thing.outer()) == (2, 2, 2, 2)


def test_what_lies_outside_of_functions_has_to_be_imported_anew(
    module: ModuleType, tmp_path: Path
) -> None:
    (tmp_path / "swapped_example.py").write_text(SOURCE)
    assert not swap(tmp_path, "swapped_example.py", "")
