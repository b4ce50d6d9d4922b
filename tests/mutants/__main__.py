"""Judges mutants, and prints who killed each."""

import sys

from mutants.gate import judge, mutants, red_without_a_mutant, remember


def main(words: list[str]) -> int:
    """The exit code: 1 when a mutant lives, 2 when the package itself does not. The first of the
    words may be `--remember`: who kills is asked first the next time.
    """
    remembers = words[:1] == ["--remember"]
    chosen = mutants(words[remembers:])
    alive = 0
    verdicts = []
    for verdict in judge(chosen):
        verdicts.append(verdict)
        alive += not verdict.is_killed
        print(
            f"{verdict.seconds:5.1f} s  {verdict.killer or 'ALIVE'}: {verdict.mutant}", flush=True
        )
    if red := red_without_a_mutant(verdicts):
        print(f"red without a mutant: {red}", file=sys.stderr)
        return 2
    if remembers:
        remember(verdicts)
    print(f"{len(chosen) - alive} of {len(chosen)} killed")
    return 1 if alive else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
