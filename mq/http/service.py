"""What handlers are given: the broker, the readiness probe and the daemon's settings."""

from dataclasses import dataclass, field

from mq.broker.broker import Broker
from mq.broker.following import Following
from mq.broker.queue_room import QueueRoom
from mq.broker.readiness import ReadinessProbe
from mq.broker.shovels import Shovels
from mq.broker.timetable import Timetable
from mq.http.access import Access
from mq.http.complaints import Complaints
from mq.metrics.meter import Meter
from mq.metrics.scrape import Scrapes
from mq.runtime.server_settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Service:
    """One daemon's parts, as HTTP needs them; `access` says who may use them."""

    broker: Broker
    readiness: ReadinessProbe
    following: Following
    settings: ServerSettings
    access: Access
    scrapes: Scrapes
    meter: Meter | None
    """Measures requests; None: nobody wants that."""
    complaints: Complaints = field(init=False)
    """What of their errors clients and the log hear."""
    timetable: Timetable = field(init=False)
    shovels: Shovels = field(init=False)
    queue_room: QueueRoom = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "complaints", Complaints(self.broker.root.clock))
        object.__setattr__(self, "timetable", Timetable(self.broker))
        object.__setattr__(self, "shovels", Shovels(self.broker))
        room = QueueRoom(self.broker, self.settings.queues_max)
        object.__setattr__(self, "queue_room", room)
