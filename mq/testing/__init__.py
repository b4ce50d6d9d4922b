"""For tests of programs that use mq. See TESTING.md.

fake        the interface for tests
clock       its time
view        reads its queues, for assertions
transport   the clients' transport
faults      the faults of requests
inside      the daemon, in an event loop of its own thread
upkeep      mq-mover's work, at each moment of the clock
"""

from mq.testing.clock import FakeClock
from mq.testing.fake import FakeMq
from mq.testing.view import QueueView, Seen

__all__ = ["FakeClock", "FakeMq", "QueueView", "Seen"]
