"""The bounds of a fake."""

from typing import Final

from mq.model.limits import MIB

# Messages that live in it, those that were removed and can still be read, and bytes of a body.
MESSAGES_MAX: Final = 1_000_000
REMOVED_MAX: Final = 10_000
# Queues, and a queue's idempotency keys: the first ones are forgotten.
QUEUES_MAX: Final = 100_000
ONCES_MAX: Final = 100_000
# Messages of a queue of which it is known what became of them.
PASTS_MAX: Final = 100_000
BODY_BYTES_MAX: Final = 256 * MIB
# How far its clock jumps at a time, and how much may happen meanwhile.
ADVANCE_S_MAX: Final = 20 * 366 * 24 * 3600
TIMERS_RUNG_MAX: Final = 100_000
# Timers are looked through for those that mean nothing any more from so many on.
TIMERS_SWEPT_MIN: Final = 1000
# When a firing is tried again that the queue did not take.
FIRING_AGAIN_MS: Final = 10_000
# Requests that are to fail, and transports.
FAULTS_MAX: Final = 10_000
RETRY_AFTER_S_MAX: Final = 3600
