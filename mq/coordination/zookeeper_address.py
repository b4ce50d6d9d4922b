"""`zookeeper://HOST:PORT[,HOST:PORT...][/PREFIX][?client=NAME&auth=digest:USER:PASSWORD&timeout=S]`,
and the paths below it. Pure.

The nodes are the original's: `{prefix}/{client}-ignis-workers/{client}/` with
`loadbalancer-leader`, `members` and `communicator`.
"""

import re
from dataclasses import dataclass, field
from typing import Final, Self
from urllib.parse import parse_qsl, urlsplit

from mq.model.errors import BadName, StartupError
from mq.store.format.members import parse_member

# A ZooKeeper session's timeout: a member is gone this long after its last heartbeat.
SESSION_S_DEFAULT: Final = 10.0
SESSION_S_MAX: Final = 600.0

SCHEME: Final = "zookeeper"
EXAMPLE: Final = (
    "zookeeper://HOST:PORT[,HOST:PORT...][/PREFIX]"
    "[?client=NAME&auth=digest:USER:PASSWORD&timeout=SECONDS]"
)
_HOSTS: Final = re.compile(r"[^/?#]*")
_HOST: Final = re.compile(r"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9_.-]+)(?::(?P<port>[0-9]{1,5}))?")
_PREFIX: Final = re.compile(r"(?:/[A-Za-z0-9_.-]+)*")
_AUTH: Final = re.compile(r"digest:(?P<credentials>[^:]+:.+)", re.DOTALL)
_PORT_MAX: Final = 65535


@dataclass(frozen=True, slots=True)
class Address:
    """The address at which members meet."""

    hosts: str
    """The hosts in kazoo's form."""
    prefix: str = ""
    client: str | None = None
    """None: the root's own name."""
    credentials: str | None = field(default=None, repr=False)
    """user:password, of the scheme `digest`."""
    session_s: float = SESSION_S_DEFAULT
    """The session timeout: a member is gone this many seconds after its last heartbeat."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parses an address. Raises StartupError, which shows the form and never the password."""
        # A URL has one host; newer Pythons refuse brackets behind others.
        scheme, _, rest = text.partition("://")
        hosts = _HOSTS.findall(rest)[0]
        try:
            parts = urlsplit(f"{scheme}://hosts{rest[len(hosts) :]}")
            asked = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise _bad("it is no URL") from None
        if parts.scheme != SCHEME or parts.fragment:
            raise _bad("it is no zookeeper:// URL")
        for host in hosts.split(","):
            match = _HOST.fullmatch(host)
            if match is None or not 0 < int(match["port"] or 1) <= _PORT_MAX:
                raise _bad("each of its hosts is HOST:PORT or HOST")
        prefix = parts.path.rstrip("/")
        if _PREFIX.fullmatch(prefix) is None or {".", ".."} & set(prefix.split("/")):
            raise _bad("its prefix is of letters, digits, _ . - and /")
        given = dict(asked)
        if len(given) != len(asked) or set(given) - {"client", "auth", "timeout"}:
            raise _bad("after ? stand client, auth and timeout, each once")
        client, auth, timeout = given.get("client"), given.get("auth"), given.get("timeout")
        return cls(
            hosts,
            prefix,
            None if client is None else _client(client),
            None if auth is None else _credentials(auth),
            SESSION_S_DEFAULT if timeout is None else _session_s(timeout),
        )


@dataclass(frozen=True, slots=True)
class Nodes:
    """The paths of one client's members."""

    base: str

    @classmethod
    def of(cls, prefix: str, client: str) -> Self:
        return cls(f"{prefix}/{client}-ignis-workers/{client}")

    @property
    def leader(self) -> str:
        """The election's folder: by kazoo's recipe its first child leads."""
        return f"{self.base}/loadbalancer-leader"

    @property
    def members(self) -> str:
        """The folder of members: a child for each session."""
        return f"{self.base}/members"

    @property
    def communicator(self) -> str:
        """The folder of deals: a child for each member."""
        return f"{self.base}/communicator"

    def member(self, member: str) -> str:
        return f"{self.members}/{member}"

    def told(self, member: str) -> str:
        """The node with the member's deal."""
        return f"{self.communicator}/{member}"


def _client(text: str) -> str:
    try:
        return parse_member(text)
    except BadName as error:
        raise _bad(f"its client is {error.expected}") from None


def _credentials(text: str) -> str:
    match = _AUTH.fullmatch(text)
    if match is None:
        raise _bad("its auth is digest:USER:PASSWORD")
    return match["credentials"]


def _session_s(text: str) -> float:
    try:
        session_s = float(text)
    except ValueError:
        session_s = 0.0
    if not 0.1 <= session_s <= SESSION_S_MAX:
        raise _bad(f"its timeout is seconds, 0.1 to {SESSION_S_MAX:g}")
    return session_s


def _bad(why: str) -> StartupError:
    return StartupError(f"the address of a ZooKeeper is malformed: {why}; use {EXAMPLE}")
