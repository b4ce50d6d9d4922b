"""What chance decides: its seeds, and how much of it.

MQ_TIMES=10 is ten times as much of the certificate. Of random examples `deploy/check` takes a
fifth; the certificate's part `check` takes all (MQ_EXAMPLES=all).
"""

import os
import random
import secrets


def drawn_seed(name: str) -> int:
    """The one that the environment names, else another each time the suite runs: the same one in
    all processes that share a run, which must agree on what tests there are.
    """
    if given := int(os.environ.get(name, "0")):
        return given
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex()
    return random.Random(run).randrange(1, 2**31)


TIMES = int(os.environ.get("MQ_TIMES", "1"))


def examples(count: int) -> int:
    """How many examples hypothesis takes of `count`."""
    return count if os.environ.get("MQ_EXAMPLES") == "all" else max(count // 5, 5)
