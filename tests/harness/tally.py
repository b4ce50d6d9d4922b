"""Counts for whoever writes down how much was tested: states, images, cuts, kills."""

import json
import os


def tally(what: str, count: int) -> None:
    """Adds a line to the file that MQ_TALLY names, and prints it; without MQ_TALLY it is only
    printed.
    """
    print(f"{what}: {count}")
    if path := os.environ.get("MQ_TALLY"):
        line = json.dumps({"what": what, "count": count}) + "\n"
        with open(path, "a", encoding="utf-8") as file:
            file.write(line)  # One write of one short line: processes may share the file.
