"""What a service manager is told of a process that it started: systemd's sd_notify(3) protocol.

Lines in one datagram, to the socket that the environment names. Nobody is told where none
is named, and a manager that does not listen is no reason to fail.
"""

import logging
import math
import socket
from collections.abc import Callable, MutableMapping
from typing import Final

from mq.model.errors import StartupError

_log = logging.getLogger("mq.notify")

_SOCKET: Final = "NOTIFY_SOCKET"
_EVERY: Final = "WATCHDOG_USEC"
_WHOSE: Final = "WATCHDOG_PID"
_US_PER_S: Final = 1_000_000
# A manager reads at once; one that does not gets no more than this of anybody's time.
_PATIENCE_S: Final = 1.0


class Notifier:
    """Tells how a process is. From any thread; what cannot be told is dropped, and logged once."""

    def __init__(
        self, send: Callable[[bytes], None] | None = None, watchdog_s: float | None = None
    ) -> None:
        """`send` takes one message to whoever listens, and may raise OSError; None: nobody does.
        `watchdog_s`: after so many seconds without `alive` the process is ended and started again.
        """
        self._send = send
        self._last_status = ""
        self._is_unheard = False
        self.watchdog_s = watchdog_s if send is not None else None

    @property
    def is_told(self) -> bool:
        """Whether there is anybody to tell."""
        return self._send is not None

    def ready(self, status: str) -> None:
        """That it serves from now on."""
        self._last_status = status
        self._tell("READY=1", f"STATUS={_line(status)}")

    def status(self, text: str) -> None:
        """One line for people, as `systemctl status` shows it; told when it is another."""
        if text != self._last_status:
            self._last_status = text
            self._tell(f"STATUS={_line(text)}")

    def alive(self) -> None:
        """That it lives, for the watchdog."""
        self._tell("WATCHDOG=1")

    def stopping(self, within_s: float) -> None:
        """That it ends, and takes at most so many seconds, however short the unit's patience is."""
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
                _log.warning("the service manager does not listen", extra={"fields": fields})
            self._is_unheard = True


def take_notifier(environment: MutableMapping[str, str], pid: int) -> Notifier:
    """The manager that the environment of process `pid` names; the variables are taken out of it,
    so that no child speaks for this process. Raises StartupError for what no manager sets.
    """
    address = environment.pop(_SOCKET, "")
    every, whose = environment.pop(_EVERY, ""), environment.pop(_WHOSE, "")
    if not address:
        return Notifier()
    if address[0] not in "/@" or len(address) == 1:
        raise StartupError(f"{_SOCKET} is no path of a socket and no abstract one: {address!r}")
    if whose and whose != str(pid):
        every = ""
    return Notifier(_sender(address), _watchdog_s(every) if every else None)


def _watchdog_s(every: str) -> float:
    if not every.isascii() or not every.isdigit() or int(every) == 0:
        raise StartupError(f"{_EVERY} is no number of microseconds: {every!r}")
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
