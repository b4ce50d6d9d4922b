"""An mq in memory, for tests of programs that use one. See CLIENT.md, "Testing with the fake".

fake        what a test makes, moves, and has go wrong
clock       its time
view        a look at its queues
transport   what a client is given
dispatch, answers   requests read, done and answered
world, queue, message   what there is, and what time does to it
publishing, fetching, settling, redelivery, queues, schedules, shovels   what becomes of it
consuming   one WebSocket
faults, waiting   what goes wrong, and who waits

Down from here, all but `transport` and `waiting` is pure: it decides under one lock, and waits for
nothing.
"""

from mq.client.fake.clock import FakeClock
from mq.client.fake.fake import FakeMq
from mq.client.fake.view import QueueView, Seen

__all__ = ["FakeClock", "FakeMq", "QueueView", "Seen"]
