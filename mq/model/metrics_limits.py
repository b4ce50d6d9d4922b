"""Bounds on what a scrape costs.

Beside `mq.model.limits`, and in its manner.
"""

from typing import Final

QUEUES_NAMED_DEFAULT: Final = 100
"""How many queues have samples of their own."""
QUEUES_NAMED_MAX: Final = 100_000
COUNTING_S: Final = 0.1
"""How long a scrape counts queues for."""
DISK_S: Final = 2.0
"""How long a scrape waits for the disk; Prometheus itself gives up after ten seconds."""
KEPT_EVERY_S: Final = 1.0
"""How often each of several processes writes down what it counted elsewhere, and holds."""
