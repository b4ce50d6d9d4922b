"""Counts that tests keep of what they did: images, states, cuts, kills, faults, mutants.

MQ_TALLY names a file that gets a JSON line each; without it nothing is written.
`tests/crash/DURABILITY.md` says what the figures were.
"""

import json
import os


def tally(kind: str, count: int) -> None:
    """So many more of this kind were made."""
    if path := os.environ.get("MQ_TALLY"):
        test = os.environ.get("PYTEST_CURRENT_TEST")
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps({"kind": kind, "count": count, "test": test}) + "\n")
