"""The trees that a power cut may leave: all of them, or a sample, or one."""

import itertools
import math
import random
from collections.abc import Container, Iterator, Sequence

from crash.calls import Log
from crash.changes import Change, Choice, Tree
from crash.images import Mark
from crash.legal_states import Disk, Model

_EXHAUSTIVE = 256
_SAMPLES = 8


def trees(disk: Disk, exhaustive: int, samples: int, chance: random.Random) -> Iterator[Tree]:
    """The legal trees of a cut now, each once: all of them where it has at most `exhaustive` ways
    to choose; else nothing kept, all kept, and so many samples twice: any choices, and one choice
    against all others.
    """
    seen: set[int] = set()
    for way in _ways_to_choose(disk.choices(), exhaustive, samples, chance):
        tree = disk.tree(list(itertools.chain(*way)))
        key = fingerprint(tree)
        if key not in seen:
            seen.add(key)
            yield tree


def any_tree(disk: Disk, chance: random.Random) -> Tree:
    """One legal tree of a cut now."""
    keep = chance.random()
    ways = [_some_way(choice, keep, chance) for choice in disk.choices()]
    return disk.tree(list(itertools.chain(*ways)))


def left_behind(log: Log, model: Model) -> Iterator[tuple[int, Tree]]:
    """For a cut before each place of the log each legal tree, and how often was said `kept`."""
    disk, kept, chance = Disk(model), 0, random.Random(model.name)
    for entry in [*log, None]:
        for tree in trees(disk, _EXHAUSTIVE, _SAMPLES, chance):
            yield kept, tree
        if entry is not None:
            kept += isinstance(entry, Mark)
            disk.apply(entry)


def fingerprint(tree: Tree, stamps: Container[int] | None = None) -> int:
    """Equal for equal trees. With `stamps`, no other mtimes count."""
    if stamps is None:
        return hash(frozenset(tree.items()))
    return hash(
        frozenset(
            (
                path,
                file
                and (file.inode, file.data, file.mtime_ns in stamps and file.mtime_ns, file.target),
            )
            for path, file in tree.items()
        )
    )


def _ways_to_choose(
    choices: list[Choice], exhaustive: int, samples: int, chance: random.Random
) -> Iterator[Sequence[tuple[Change, ...]]]:
    if math.prod(len(choice.ways) for choice in choices) <= exhaustive:
        yield from itertools.product(*(choice.ways for choice in choices))
        return
    least = [choice.ways[0] for choice in choices]
    most = [choice.ways[-1] for choice in choices]
    yield from (least, most)
    for _ in range(samples):
        keep = chance.random()
        yield [_some_way(choice, keep, chance) for choice in choices]
        base, place = chance.choice((least, most)), chance.randrange(len(choices))
        yield [*base[:place], chance.choice(choices[place].ways), *base[place + 1 :]]


def _some_way(choice: Choice, keep: float, chance: random.Random) -> tuple[Change, ...]:
    """Kept whole with this probability, else any way."""
    return choice.ways[-1] if chance.random() < keep else chance.choice(choice.ways)
