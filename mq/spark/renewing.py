"""Keeping a consumer's open leases from lapsing while they are worked on. No Spark here."""

import logging
import threading
from collections.abc import Callable
from typing import Final

from mq.model.bulk_limits import LEASE_RENEWAL_RETRY_S, RENEWALS_PER_LEASE
from mq.model.errors import Busy, LeaseLost, MqError
from mq.model.names import ConsumerName
from mq.store.core.root import Root
from mq.store.leases.lease import leases_of, renew

_log: Final = logging.getLogger("mq.spark")


def renew_open(root: Root, consumer: ConsumerName, lease_s: float) -> bool:
    """Has each open lease of the consumer lapse `lease_s` seconds from now; whether all could be
    looked at. What lapsed meanwhile is none of this: whoever reads or ends the lease finds out.
    """
    complete = True
    try:
        leases = [lease for lease in leases_of(root, consumer) if lease.is_open]
    except (MqError, OSError) as error:
        _log.warning("leases of %s cannot be renewed now: %r", consumer.text, error)
        return False
    for lease in leases:
        try:
            renew(root, lease.name, lease_s)
        except LeaseLost:
            continue
        except Busy:
            complete = False
        except (MqError, OSError) as error:
            _log.warning("lease %s cannot be renewed now: %r", lease.name.text, error)
            complete = False
    return complete


def keep_renewed(
    root: Root, consumer: ConsumerName, lease_s: float, wait: Callable[[float], bool]
) -> None:
    """Renews again and again, until a wait of so many seconds says that it is over."""
    every_s = lease_s / RENEWALS_PER_LEASE
    wait_s = every_s
    while not wait(wait_s):
        complete = renew_open(root, consumer, lease_s)
        wait_s = every_s if complete else min(every_s, LEASE_RENEWAL_RETRY_S)


class Renewing:
    """A thread that renews a consumer's open leases until `close`, or until the process dies."""

    def __init__(self, root: Root, consumer: ConsumerName, lease_s: float) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=keep_renewed,
            args=(root, consumer, lease_s, self._over.wait),
            name="mq-renew",
            daemon=True,
        )
        self._thread.start()

    def close(self) -> None:
        """On return nothing is renewed any more."""
        self._over.set()
        self._thread.join()
