"""Judges mutants, and prints who killed each."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CalledProcessError

from mutants.exemptions import are_killed, living
from mutants.gate import (
    all_mutants,
    callers_of,
    chosen_of,
    judge,
    modules_changed,
    mutants,
    red_without_a_mutant,
)
from mutants.killers import remember
from mutants.syntax import Mutant


def main(words: list[str]) -> int:
    """The exit code: 1 when a mutant lives, 2 when the package itself does not."""
    asked = _parser().parse_args(words)
    try:
        changed = modules_changed(asked.changed) if asked.changed else None
    except CalledProcessError as error:
        print(f"git: {error.stderr.strip()}", file=sys.stderr)
        return 2
    if asked.living:
        names = set(living())
        found = [mutant for mutant in all_mutants() if mutant.name in names]
        chosen = chosen_of(found, asked.word, changed)
    else:
        chosen = mutants(asked.word, changed)
    if asked.list:
        print("".join(f"{mutant.name}\n" for mutant in chosen), end="")
        return 0
    verdicts = []
    for verdict in judge(chosen, asked.threads, *_at_last(asked)):
        verdicts.append(verdict)
        said = verdict.killer or "ALIVE"
        print(f"{verdict.seconds:5.1f} s  {said}: {verdict.mutant}", flush=True)
    if red := red_without_a_mutant(verdicts):
        print(f"red without a mutant: {red}", file=sys.stderr)
        return 2
    killed = {verdict.mutant: verdict.killer for verdict in verdicts if verdict.is_killed}
    if asked.remember:
        remember(killed, (mutant.name for mutant in all_mutants()))
        are_killed(killed)
    print(f"{len(killed)} of {len(chosen)} killed")
    return 1 if len(killed) < len(chosen) else 0


def _at_last(asked: argparse.Namespace) -> tuple[Callable[[Mutant], Sequence[str]], ...]:
    """Who is asked about a mutant that no killer of its neighbours kills; none: all tests."""
    if asked.quick:
        return (lambda _: (),)
    return () if asked.callers is None else (callers_of(asked.callers),)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m mutants", description=__doc__)
    parser.add_argument("word", nargs="*", help="only mutants whose names have all these words")
    parser.add_argument(
        "--changed",
        nargs="?",
        const="main",
        metavar="BASE",
        help="only mutants of the modules that differ from this branch (main)",
    )
    parser.add_argument("--list", action="store_true", help="say which they are, and run nothing")
    parser.add_argument(
        "--quick",
        action="store_true",
        help="ask those tests alone that have killed others of the same function or module",
    )
    parser.add_argument(
        "--callers",
        type=Path,
        metavar="FILE",
        help="then those that call the function that is changed, as the file says; without the "
        "file all tests are run once, and it is written",
    )
    parser.add_argument(
        "--living", action="store_true", help="those instead that no test was known to kill"
    )
    parser.add_argument(
        "--remember", action="store_true", help="who kills is asked first the next time"
    )
    parser.add_argument("--threads", type=int, metavar="N", help="so many at a time")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
