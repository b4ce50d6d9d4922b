"""What handlers are given: the broker, the readiness probe and the daemon's settings."""

from dataclasses import dataclass

from mq.broker.broker import Broker
from mq.broker.readiness import ReadinessProbe
from mq.settings import ServerSettings


@dataclass(frozen=True, slots=True)
class Service:
    """One daemon's parts, as HTTP needs them."""

    broker: Broker
    readiness: ReadinessProbe
    settings: ServerSettings
