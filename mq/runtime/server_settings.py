"""The settings of the process `mq`, from its flags and environment."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from mq.access.tls import TlsFiles
from mq.model.limits import (
    FOLDER_FILES_MAX,
    JWT_LEEWAY_S_DEFAULT,
    MEMORY_BYTES_DEFAULT,
    PING_S_DEFAULT,
    REFRESH_EVERY_S,
    WAITERS_MAX_DEFAULT,
)
from mq.model.settings import CommitMode, Durability, QueueSettings

# The most processes beside those of --processes that a fetch allows for.
PEERS_DEFAULT: Final = 0
DRAIN_S_DEFAULT: Final = 30.0
BODY_IDLE_S_DEFAULT: Final = 30.0
HANDSHAKE_S_DEFAULT: Final = 10.0
HEAD_S_DEFAULT: Final = 10.0
CONNECTIONS_MAX_DEFAULT: Final = 10_000
# A client that reads nothing of a waiting answer for this long is disconnected.
UNREAD_S_DEFAULT: Final = 60.0
QUEUES_MAX_DEFAULT: Final = 100_000

QUEUES_NAMED_DEFAULT: Final = 100
"""How many queues have samples of their own."""


@dataclass(frozen=True, slots=True)
class JwtSettings:
    """Which JSON Web Tokens are accepted: for the `audience`, from the `issuer` if it is given,
    signed with a key of a JWK set in a file or at a URL. One of the two is given.
    """

    audience: str
    issuer: str | None = None
    file: Path | None = None
    url: str | None = None
    leeway_s: float = JWT_LEEWAY_S_DEFAULT


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """The settings of one mq process. Of several `processes` it is the one with this index, under a
    supervisor.
    """

    root: Path
    makes_root: bool = True
    """Whether a root that is missing is made: by what the operator has started, unless told."""
    known_root: str | None = None
    """The identity of the root that a child must find."""
    address: str = "127.0.0.1"
    port: int = 8080
    processes: int = 1
    process_index: int = 0
    peers: int = PEERS_DEFAULT
    commit: CommitMode = "auto"
    durability: Durability = "media"
    force: bool = False
    reserve_bytes: int | None = None
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    """For all processes together."""
    body_idle_s: float = BODY_IDLE_S_DEFAULT
    drain_s: float = DRAIN_S_DEFAULT
    ping_s: float = PING_S_DEFAULT
    """How long a WebSocket's client may be silent before it gets a ping."""
    folder_max: int = FOLDER_FILES_MAX
    inotify: bool = True
    """Whether inotify is used to learn of messages in queues with waiting consumers."""
    peer_index: int | None = None
    """The peer whose share of the messages this process begins with; None: a random one."""
    descriptors: tuple[int, ...] = ()
    """Sockets that already listen, instead of an address and a port."""
    traces: bool = False
    """Whether each request is a span, sent as OpenTelemetry's environment says."""
    refresh_s: float = REFRESH_EVERY_S
    """How often a process looks at all queues for other processes' changes."""
    tokens: Path | None = None
    """The file of tokens and their rights; None: no token is needed."""
    jwt: JwtSettings | None = None
    """Which JSON Web Tokens are accepted."""
    tls_clients: Path | None = None
    """The file of client certificates' names and their rights."""
    allow_anonymous: bool = False
    """Whether callers from other machines may do everything without authentication."""
    queue: QueueSettings = field(default_factory=QueueSettings)
    metrics_queues: int = QUEUES_NAMED_DEFAULT
    """How many queues have samples of their own in `/-/metrics`."""
    timings: bool = True
    """Whether requests and flushes are measured."""
    board: int | None = None
    """The descriptor of the memory with all processes' counters; None: each has its own."""
    exchange: tuple[int, ...] = ()
    """The descriptors of sockets by which the processes ask each other; none: each is alone."""
    tls: TlsFiles | None = None
    """Certificate and key for HTTPS; None: HTTP."""
    handshake_s: float = HANDSHAKE_S_DEFAULT
    """The longest TLS handshake."""
    head_s: float = HEAD_S_DEFAULT
    """The longest time from the first to the last byte of a request's head."""
    unread_s: float = UNREAD_S_DEFAULT
    """How long a client may read nothing of an answer that waits for it."""
    connections_max: int = CONNECTIONS_MAX_DEFAULT
    """For this process."""
    waiters_max: int = WAITERS_MAX_DEFAULT
    """How many consumers may wait in this process, by long polls or subscriptions."""
    queues_max: int = QUEUES_MAX_DEFAULT
    """The largest number of queues in the root at which clients may still make one."""

    @property
    def has_files(self) -> bool:
        """Whether there are files that a reload reads again."""
        return self.tls is not None or self.controls_access

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor started the process and ends it."""
        return self.processes > 1

    def page_at(self, port: int) -> str:
        """The address of the page, for people on this machine."""
        scheme, host = "http" if self.tls is None else "https", self.address
        if host in ("0.0.0.0", "127.0.0.1") or host.startswith("::"):
            host = "localhost"
        parts = (scheme, host if "." in host or host == "localhost" else f"[{host}]", port)
        return "{}://{}:{}/-/".format(*parts)

    @property
    def controls_access(self) -> bool:
        """Whether callers authenticate; by files that a reload reads again."""
        return any(each is not None for each in (self.tokens, self.jwt, self.tls_clients))

    @property
    def asks_certificates(self) -> bool:
        """Whether every connection needs a certificate of a trusted authority."""
        tls = self.tls
        return tls is not None and tls.client_ca is not None and tls.client_auth == "required"
