"""Reports to the service manager that started the process: systemd's sd_notify(3) protocol.

A report is lines in one datagram to the socket that the environment names. Without a socket there
are no reports, and a manager that does not listen is no reason to fail.
"""

import math
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

from mq.model.errors import StartupError
from mq.model.log import logger

_log = logger("mq.notify")

_SOCKET: Final = "NOTIFY_SOCKET"
_EVERY: Final = "WATCHDOG_USEC"
_WHOSE: Final = "WATCHDOG_PID"
_US_PER_S: Final = 1_000_000
# A manager reads at once. A report waits no longer than this for one that does not.
_PATIENCE_S: Final = 1.0


class Notifier:
    """Reports the state of a process. For any thread; a failed report is logged once."""

    def __init__(
        self, send: Callable[[bytes], None] | None = None, watchdog_s: float | None = None
    ) -> None:
        """`send` takes one message to the manager, and may raise OSError; None: there is none.
        `watchdog_s`: after these seconds without `alive` the manager restarts the process.
        """
        self._send = send
        self._last_status = ""
        self._is_unheard = False
        self.watchdog_s = watchdog_s if send is not None else None

    @property
    def is_told(self) -> bool:
        return self._send is not None

    def ready(self, status: str) -> None:
        """Reports that the process serves from now on."""
        self._last_status = status
        self._tell("READY=1", f"STATUS={_line(status)}")

    def status(self, text: str) -> None:
        """Reports a line for people, as `systemctl status` shows it, if it has changed."""
        if text != self._last_status:
            self._last_status = text
            self._tell(f"STATUS={_line(text)}")

    def alive(self) -> None:
        self._tell("WATCHDOG=1")

    def stopping(self, within_s: float) -> None:
        """Reports that the process ends, and the seconds that this may take, also beyond the unit's
        own limit.
        """
        within_us = math.ceil(within_s * _US_PER_S)
        self._tell("STOPPING=1", "STATUS=Draining", f"EXTEND_TIMEOUT_USEC={within_us}")

    def _tell(self, *lines: str) -> None:
        if self._send is None:
            return
        try:
            self._send("\n".join(lines).encode())
            self._is_unheard = False
        except OSError as error:
            if not self._is_unheard:
                fields = {"error": repr(error)}
                _log.warning("cannot notify the service manager", extra={"fields": fields})
            self._is_unheard = True


def take_notifier(environment: MutableMapping[str, str], pid: int) -> Notifier:
    """The manager that the environment of process `pid` names. Takes the variables out of the
    environment, so that no child reports for this process. Raises StartupError for bad values.
    """
    address = environment.pop(_SOCKET, "")
    every, whose = environment.pop(_EVERY, ""), environment.pop(_WHOSE, "")
    if not address:
        return Notifier()
    if address[0] not in "/@" or len(address) == 1:
        raise StartupError(
            f"{_SOCKET}, which the service manager sets, must be a socket's path, or @ and a name, "
            f"not {address!r}; correct or unset it"
        )
    if whose and whose != str(pid):
        every = ""
    return Notifier(_sender(address), _watchdog_s(every) if every else None)


def _watchdog_s(every: str) -> float:
    if not every.isascii() or not every.isdigit() or int(every) == 0:
        raise StartupError(
            f"{_EVERY}, which the service manager sets, must be a number of microseconds, not "
            f"{every!r}; correct or unset it"
        )
    return int(every) / _US_PER_S


def _sender(address: str) -> Callable[[bytes], None]:
    place = "\0" + address[1:] if address.startswith("@") else address

    def send(message: bytes) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sending:
            sending.settimeout(_PATIENCE_S)
            sending.sendto(message, place)

    return send


def _line(text: str) -> str:
    return text.replace("\n", " ")
