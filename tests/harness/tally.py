"""A tally of what tests did, for whoever wants the sums: one JSON line a count."""

import json
import os


def tally(kind: str, count: int) -> None:
    """Adds to the file named by MQ_TALLY; without it, nothing."""
    if path := os.environ.get("MQ_TALLY"):
        line = {"kind": kind, "count": count, "test": os.environ.get("PYTEST_CURRENT_TEST")}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
