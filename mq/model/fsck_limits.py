"""Bounds of audits and of fsck."""

from typing import Final

QUEUES_COUNTED_MAX: Final = 100_000
"""Queues whose messages an audit counts apart."""
SUSPECTS_MAX: Final = 16_384
"""Breaches that were seen once and wait for their second look."""
EXAMPLES_MAX: Final = 1000
"""Breaches, and repairs, of which a report says where; of the others it has their number."""
PASSES_MAX: Final = 5
"""So often fsck goes through a root that it puts right."""
AGAIN_AFTER_S: Final = 2.0
"""Between the two looks at a breach. From one step to the next daemons take less."""
AGAIN_AFTER_S_MAX: Final = 3600.0
OVERDUE_S_DEFAULT: Final = 60.0
"""How late upkeep may be before fsck says so."""
PUT_RIGHT_TRIES_MAX: Final = 10
PUT_RIGHT_AGAIN_S: Final = 0.2
"""Another process may have the lock that a repair needs."""
LOOKS_PER_TELLING: Final = 1000
"""Between two times that a progress bar hears of it."""
