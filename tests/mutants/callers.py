"""Which tests call which functions: no others kill a mutant, but for those that start daemons.

A plugin of pytest, `-p mutants.callers`, adds a line for each test to the file that MQ_CALLERS
names: its id, its seconds, and the functions of the project that it called.
"""

import json
import os
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Self

import pytest

from mutants.syntax import Mutant

FILE = "MQ_CALLERS"


class Callers:
    """The tests that call a function, the quickest first."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._tests: dict[str, list[str]] = defaultdict(list)
        for test, _, called in sorted(map(json.loads, lines), key=lambda each: each[1]):
            for function in called:
                self._tests[function].append(test)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Those of a run with the plugin."""
        return cls(file.read_text().splitlines())

    def of(self, mutant: Mutant) -> list[str]:
        """Of what lies outside of all functions nothing is known."""
        return self._tests.get(f"{mutant.module} {mutant.function}", [])


class _Called:
    """What was called since it was last asked."""

    def __init__(self) -> None:
        self._project = f"{Path.cwd()}/mq"
        self._names: dict[CodeType, str | None] = {}
        self._called: set[str] = set()

    def start(self) -> None:
        self._called.clear()
        threading.setprofile(self._hear)
        sys.setprofile(self._hear)

    def end(self) -> list[str]:
        sys.setprofile(None)
        threading.setprofile(None)
        return sorted(self._called)

    def _hear(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and (name := self._name(frame.f_code)) is not None:
            self._called.add(name)

    def _name(self, code: CodeType) -> str | None:
        if code not in self._names:
            is_ours = code.co_filename.startswith(self._project)
            path = os.path.relpath(code.co_filename)
            name = code.co_qualname.replace("<locals>.", "")
            self._names[code] = f"{path} {name}" if is_ours else None
        return self._names[code]


_called = _Called()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _called.start()
    began = time.process_time()
    try:
        return (yield)
    finally:
        line = [item.nodeid, time.process_time() - began, _called.end()]
        with open(os.environ[FILE], "a") as file:
            print(json.dumps(line), file=file)
