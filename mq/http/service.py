"""The daemon's parts that handlers use."""

from dataclasses import dataclass, field

from mq.broker.broker import Broker
from mq.broker.following import Following
from mq.broker.queue_room import QueueRoom
from mq.broker.readiness import ReadinessProbe
from mq.broker.roster import Roster
from mq.broker.shovels import Shovels
from mq.broker.timetable import Timetable
from mq.http.access import Access
from mq.http.answers import ErrorResponses
from mq.metrics.meter import Meter
from mq.metrics.scrape import Scrapes
from mq.runtime.exchange import Exchange
from mq.runtime.server_settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Service:
    """One daemon's parts, as handlers need them."""

    broker: Broker
    readiness: ReadinessProbe
    following: Following
    settings: ServerSettings
    access: Access
    scrapes: Scrapes
    meter: Meter | None
    """Measures requests; None: metrics are off."""
    error_responses: ErrorResponses = field(init=False)
    """Answers errors, and logs them."""
    timetable: Timetable = field(init=False)
    shovels: Shovels = field(init=False)
    queue_room: QueueRoom = field(init=False)
    roster: Roster = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "error_responses", ErrorResponses(self.broker.root.presence))
        object.__setattr__(self, "timetable", Timetable(self.broker))
        object.__setattr__(self, "shovels", Shovels(self.broker))
        limit = QueueRoom(self.broker, self.settings.queues_max)
        object.__setattr__(self, "queue_room", limit)
        index = self.settings.process_index
        exchange = Exchange(index, self.settings.exchange)
        object.__setattr__(self, "roster", Roster(self.broker.used, index, exchange))
        self.broker.others_give_turn = self.roster.others_give_turn
