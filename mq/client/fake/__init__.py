"""An mq in memory, for tests of programs that use mq. See FAKE.md.

It is the daemon, with a root in memory and a clock that tests advance.

fake        the interface for tests
clock       its time
view        reads its queues, for assertions
transport   the clients' transport
world       the daemon, in an event loop of its own thread
wire        connections to the daemon without a network
upkeep      mq-mover's work, at each moment of the clock
faults      the faults of requests
"""

from mq.client.fake.clock import FakeClock
from mq.client.fake.fake import FakeMq
from mq.client.fake.view import QueueView, Seen

__all__ = ["FakeClock", "FakeMq", "QueueView", "Seen"]
