"""Who killed each mutant the last time, and so is asked first: a hint that is wrong costs a try."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from mutants.syntax import Mutant

REMEMBERED = Path(__file__).parent / "killers.txt"
_SEPARATOR = "  "
# So many of those who have killed others of the same function, and of the same module.
_OF_FUNCTION_MAX = 6
_OF_MODULE_MAX = 12


class Killers:
    """The tests that killed, by the mutants' names; `tests` are those that there are."""

    def __init__(self, killed_by: Mapping[str, str], tests: Iterable[str]) -> None:
        there = list(tests)
        self._tests = {_own_name(test): test for test in there} | {test: test for test in there}
        found = {name: self._now(killer) for name, killer in killed_by.items()}
        self._killed_by = {name: killer for name, killer in found.items() if killer}
        self.gone = {killed_by[name]: name for name, killer in found.items() if not killer}
        """Those that are no tests any more, each with a mutant that it killed."""

    @classmethod
    def read(cls, tests: Iterable[str]) -> Self:
        """Those that are remembered."""
        return cls(remembered(), tests)

    def to_ask(self, mutant: Mutant) -> Iterator[Sequence[str]]:
        """Who killed it, then who killed its neighbours: those of its function, of its module."""
        first = self._killed_by.get(mutant.name)
        if first is not None:
            yield [first]
        near = self._of(f"{mutant.module} {mutant.function}: ", _OF_FUNCTION_MAX)
        near += self._of(f"{mutant.module} ", _OF_MODULE_MAX)
        if others := [test for test in dict.fromkeys(near) if test != first]:
            yield others

    def learn(self, mutant: Mutant, killer: str) -> None:
        """Has the next of its function and its module ask this killer, too."""
        if killer in self._tests:
            self._killed_by[mutant.name] = killer

    def _of(self, beginning: str, limit: int) -> list[str]:
        found = Counter(
            test for name, test in list(self._killed_by.items()) if name.startswith(beginning)
        )
        return [test for test, _ in found.most_common(limit)]

    def _now(self, test: str) -> str | None:
        """The test as it is called now: its file may have another name by now."""
        return self._tests.get(test, self._tests.get(_own_name(test)))


def remember(killed_by: Mapping[str, str], names: Iterable[str]) -> None:
    """Adds who killed these to what is remembered; what has none of the names is forgotten."""
    known, all_names = remembered() | dict(killed_by), set(names)
    lines = (f"{killer}{_SEPARATOR}{name}\n" for name, killer in known.items() if name in all_names)
    REMEMBERED.write_text("".join(sorted(line for line in lines if line.startswith("tests/"))))


def remembered() -> dict[str, str]:
    """The tests that killed, by the mutants' names."""
    lines = REMEMBERED.read_text().splitlines() if REMEMBERED.exists() else []
    return {name: killer for killer, _, name in (line.partition(_SEPARATOR) for line in lines)}


def _own_name(test: str) -> str:
    return test.partition("::")[2]
