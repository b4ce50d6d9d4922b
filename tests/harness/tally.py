"""Counts that tests keep of what they did: images, states, cuts, kills, faults, mutants.

MQ_TALLY names a file that gets a JSON line each; without it nothing is written. Processes that run
tests side by side share it: a line is one write to a file's end.
`python -m harness.tally FILE` adds them up.
"""

import json
import os
import sys
from collections import Counter


def tally(kind: str, count: int) -> None:
    """So many more of this kind were made."""
    if path := os.environ.get("MQ_TALLY"):
        test = os.environ.get("PYTEST_CURRENT_TEST")
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "count": count, "test": test}) + "\n")


def sums(path: str) -> Counter[str]:
    """How many of each kind a file tells of."""
    totals: Counter[str] = Counter()
    with open(path, encoding="utf-8") as file:
        for line in file:
            entry = json.loads(line)
            totals[entry["kind"]] += entry["count"]
    return totals


if __name__ == "__main__":
    for kind, count in sorted(sums(sys.argv[1]).items()):
        print(f"{count:9,} {kind}")
