"""Counts of what the tests did, for whoever asks by MQ_TALLY."""

import json
import os


def tally(kind: str, count: int) -> None:
    """Appends so many of a kind, as a line of JSON, to the file that MQ_TALLY names, if any."""
    path = os.environ.get("MQ_TALLY")
    if path:
        line = {"kind": kind, "count": count, "test": os.environ.get("PYTEST_CURRENT_TEST")}
        with open(path, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
