"""What handlers are given: the broker, the readiness probe and the daemon's settings."""

from dataclasses import dataclass, field

from mq.broker.broker import Broker
from mq.broker.readiness import ReadinessProbe
from mq.broker.timetable import Timetable
from mq.http.complaints import Complaints
from mq.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Service:
    """One daemon's parts, as HTTP needs them."""

    broker: Broker
    readiness: ReadinessProbe
    settings: ServerSettings
    complaints: Complaints = field(init=False)
    """What of their errors clients and the log hear."""
    timetable: Timetable = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "complaints", Complaints(self.broker.root.clock))
        object.__setattr__(self, "timetable", Timetable(self.broker))
