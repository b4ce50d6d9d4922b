"""The settings of the process `mq`: what its flags and environment say."""

from dataclasses import dataclass, field
from pathlib import Path

from mq.access.jwt_settings import JwtSettings
from mq.access.tls import TlsFiles
from mq.model.limits import (
    BODY_IDLE_S_DEFAULT,
    DRAIN_S_DEFAULT,
    FOLDER_FILES_MAX,
    MEMORY_BYTES_DEFAULT,
    PEERS_DEFAULT,
    PING_S_DEFAULT,
)
from mq.model.metrics_limits import QUEUES_NAMED_DEFAULT
from mq.model.serving_limits import (
    CONNECTIONS_MAX_DEFAULT,
    HANDSHAKE_S_DEFAULT,
    HEAD_S_DEFAULT,
    QUEUES_MAX_DEFAULT,
    UNREAD_S_DEFAULT,
    WAITERS_MAX_DEFAULT,
)
from mq.model.settings import (
    CommitMode,
    Durability,
    QueueSettings,
)
from mq.model.upkeep_limits import (
    REFRESH_EVERY_S,
)


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What one mq process is told by its flags and environment. With more than one of
    `processes` it is the one with this index among them, under a supervisor.
    """

    root: Path
    address: str = "127.0.0.1"
    port: int = 8080
    workers: int = 8
    processes: int = 1
    process_index: int = 0
    peers: int = PEERS_DEFAULT
    commit: CommitMode = "auto"
    durability: Durability = "media"
    force: bool = False
    reserve_bytes: int | None = None
    memory_bytes: int = MEMORY_BYTES_DEFAULT
    """Of all processes together."""
    body_idle_s: float = BODY_IDLE_S_DEFAULT
    drain_s: float = DRAIN_S_DEFAULT
    ping_s: float = PING_S_DEFAULT
    """How long a WebSocket's client may be silent before it is asked whether it is there."""
    folder_max: int = FOLDER_FILES_MAX
    inotify: bool = True
    """Whether the kernel is asked to tell what comes to queues in which somebody waits."""
    peer_index: int | None = None
    """Whose share of the messages a process with peers begins with; None: one that it draws."""
    descriptors: tuple[int, ...] = ()
    """Sockets that listen already, instead of an address and a port."""
    traces: bool = False
    """Whether each request is a span, sent as OpenTelemetry's environment says."""
    refresh_s: float = REFRESH_EVERY_S
    """How often all queues are looked at, for what other processes did to them."""
    tokens: Path | None = None
    """The file of tokens that say who may do what; None: nobody is asked for one."""
    jwt: JwtSettings | None = None
    """Whose JSON Web Tokens are believed."""
    tls_clients: Path | None = None
    """The file that says who may do what with which client certificate."""
    allow_anonymous: bool = False
    """Whether others than this machine's may do everything without saying who they are."""
    queue: QueueSettings = field(default_factory=QueueSettings)
    metrics_queues: int = QUEUES_NAMED_DEFAULT
    """How many queues have samples of their own in `/-/metrics`."""
    timings: bool = True
    """Whether requests and flushes are measured."""
    board: int | None = None
    """The descriptor of memory in which all processes count; None: each on its own."""
    tls: TlsFiles | None = None
    """What it serves HTTPS with; None: it serves HTTP."""
    handshake_s: float = HANDSHAKE_S_DEFAULT
    """How long a client may take for TLS's handshake."""
    head_s: float = HEAD_S_DEFAULT
    """How long a client may take for a request's head, once it has begun one."""
    unread_s: float = UNREAD_S_DEFAULT
    """How long a client may take nothing of what waits for it."""
    connections_max: int = CONNECTIONS_MAX_DEFAULT
    """Of this process."""
    waiters_max: int = WAITERS_MAX_DEFAULT
    """How many consumers may wait in this process, by long polls or subscriptions."""
    queues_max: int = QUEUES_MAX_DEFAULT
    """How many queues clients may make in the root, whoever made those that there are."""

    @property
    def has_files(self) -> bool:
        """Whether there are files that it reads again while it serves."""
        return self.tls is not None or self.controls_access

    @property
    def is_supervised(self) -> bool:
        """Whether a supervisor started the process and ends it."""
        return self.processes > 1

    @property
    def controls_access(self) -> bool:
        """Whether callers are asked who they are; by files, which are read again when mq is told
        to.
        """
        return any(each is not None for each in (self.tokens, self.jwt, self.tls_clients))

    @property
    def asks_certificates(self) -> bool:
        """Whether nobody gets in without a certificate of an authority that is believed."""
        tls = self.tls
        return tls is not None and tls.client_ca is not None and tls.client_auth == "required"
