"""How much is tried where chance decides: MQ_TIMES=10 makes it ten times as much."""

import os

TIMES = int(os.environ.get("MQ_TIMES", "1"))
