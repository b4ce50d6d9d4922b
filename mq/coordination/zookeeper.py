"""The coordinator by ZooKeeper, with kazoo and its election recipe.

A member is an ephemeral node, and so is its candidacy: both end with its session. The leader writes
each member's queues to that member's node below `communicator`. A member has its queues while it is
connected and had an answer within most of its session's time. So a member that was stopped gives
its queues up before others can take them.

kazoo has threads of its own. One more here reads and writes, another stands for leader. Failures
are tried again for ever and do not reach callers of `has`.
"""

import contextlib
import logging
import threading
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.exceptions import NodeExistsError, NoNodeError
from kazoo.protocol.states import KazooState, KeeperState
from kazoo.security import CREATOR_ALL_ACL

from mq.coordination.assigning import NO_DEAL, Deal, assign
from mq.coordination.coordinator import Pacing, View
from mq.coordination.settling import Settling
from mq.coordination.telling import NOTHING, Told, parse_told, print_told
from mq.coordination.zookeeper_address import Address, Nodes
from mq.model.clock import Clock
from mq.model.log import logger
from mq.model.names import QueueName

_log = logger("mq.coordination")
# kazoo logs each try to connect; this module logs it once.
_kazoo_log = logger("mq.coordination.kazoo")
_kazoo_log.setLevel(logging.CRITICAL)

# Fractions of a session's time: the pause between two reads, and how long an answer counts.
_ASKS: Final = 1 / 5
_BELIEVES: Final = 3 / 5
_CONNECTS_AGAIN_S_MAX: Final = 2.0
_ENDED: Final = (KeeperState.AUTH_FAILED, KeeperState.CLOSED)


@dataclass(eq=False, slots=True)
class _Session:
    """One session, and this member's nodes in it."""

    id: int
    election: Any
    ended: threading.Event = field(default_factory=threading.Event)
    has_joined: bool = False
    stands: bool = False
    leads: bool = False
    deal_again_s: float = float("-inf")
    dealt: Deal = NO_DEAL
    dealt_to: tuple[str, ...] = ()

    def end(self) -> None:
        self.ended.set()
        self.election.cancel()


@dataclass(frozen=True, slots=True)
class _Known:
    """The time of the last answered question about the leader, and the number of changes of the
    connection before it.
    """

    changes: int
    asked_s: float
    leader: str | None


class ZooKeeperCoordinator:
    """A member by ZooKeeper. `has` and `view` are for any thread, the rest is for one."""

    kind = "zookeeper"

    def __init__(
        self, address: Address, client: str, clock: Clock, member: str, pacing: Pacing | None = None
    ) -> None:
        self.member = member
        self._clock = clock
        self._pacing = pacing or Pacing()
        self._hosts = address.hosts
        self._session_s = address.session_s
        self._nodes = Nodes.of(address.prefix, client)
        self._client = _client_of(address)
        self._client.add_listener(self._on_state)
        self._queues: tuple[QueueName, ...] = ()
        self._look_again_s = float("-inf")
        self._changes = 0
        self._session: _Session | None = None
        self._known: _Known | None = None
        self._settling = Settling(member, self._session_s * _BELIEVES)
        self._ours: set[int] = set()
        """The number of lost sessions."""
        self._poked = threading.Event()
        self._stopping = threading.Event()
        self._failing = False
        self._missed_s: float | None = None
        """When to log that there was never a connection; None: there was one, or it is logged."""
        self._thread = threading.Thread(target=self._run, name="coordination", daemon=True)

    def start(self) -> None:
        self._missed_s = self._clock.steady_s() + self._session_s
        self._client.start_async()
        self._thread.start()

    def run_once(self, queues: Collection[QueueName]) -> None:
        """See Coordinator: passes the queues to this object's threads, which do the rest."""
        now_s = self._clock.steady_s()
        if now_s >= self._look_again_s:
            self._look_again_s = now_s + self._pacing.look_s
            self._queues = tuple(queues)

    def has(self, queue: QueueName) -> bool:
        return self._believed() is not None and self._settling.has(queue, self._clock.steady_s())

    def next_due_s(self) -> float:
        return max(0.0, self._look_again_s - self._clock.steady_s())

    def view(self) -> View:
        """See Coordinator. A member that does not lead knows only its own queues."""
        known = self._believed()
        if known is None:
            return View(is_connected=False)
        return View(known.leader, self._settling.members, self._settling.deal.assigned)

    def stop(self) -> None:
        """See Coordinator: ends the session and with it the member's nodes."""
        self._stopping.set()
        self._on_state(KazooState.LOST)
        for end in (self._client.stop, self._client.close):
            # Also if it was never connected, where kazoo has errors of its own.
            with contextlib.suppress(Exception):
                end()
        if self._thread.is_alive():
            self._thread.join(self._session_s)

    def _believed(self) -> _Known | None:
        known = self._known
        if known is None or known.changes != self._changes:
            return None
        age_s = self._clock.steady_s() - known.asked_s
        return known if age_s < self._session_s * _BELIEVES else None

    def _on_state(self, state: str) -> None:
        """kazoo calls it when the connection comes or goes, on its own thread: it must not wait."""
        if state != KazooState.CONNECTED:
            self._changes += 1  # Earlier answers do not count any more.
        if state == KazooState.LOST and (session := self._session) is not None:
            self._session = None
            session.end()
        if not self._stopping.is_set():
            self._missed_s = None
            fields = {"member": self.member, "state": state.lower()}
            level = logging.INFO if state == KazooState.CONNECTED else logging.WARNING
            _log.log(level, "the connection to ZooKeeper changed", extra={"fields": fields})
        self._poked.set()

    def _on_watch(self, event: object) -> None:
        self._poked.set()

    def _run(self) -> None:
        ended_turns = 0
        while not self._stopping.is_set():
            self._poked.clear()
            ended_turns = ended_turns + 1 if self._client.client_state in _ENDED else 0
            try:
                if ended_turns > 1:
                    self._connect_anew()
                elif self._client.connected:
                    self._turn()
                    self._failing = False
                else:
                    self._miss()
            except Exception as error:  # kazoo has no common base class of errors.
                if not self._failing and not self._stopping.is_set():
                    fields = {"member": self.member, "error": repr(error)}
                    _log.warning(
                        "a request to ZooKeeper failed; trying again", extra={"fields": fields}
                    )
                self._failing = True
            self._poked.wait(self._session_s * _ASKS)

    def _miss(self) -> None:
        """Logs that there was never a connection: kazoo does not report a wrong address."""
        missed_s = self._missed_s
        if missed_s is not None and self._clock.steady_s() >= missed_s:
            self._missed_s = None
            fields = {"member": self.member, "hosts": self._hosts}
            _log.warning("ZooKeeper does not answer; trying again", extra={"fields": fields})

    def _connect_anew(self) -> None:
        """Connects again after a failure that kazoo does not retry, such as refused
        authentication.
        """
        with contextlib.suppress(Exception):
            self._client.stop()
        self._client.start_async()

    def _turn(self) -> None:
        """Reads the members, the leader and this member's queues; as leader, deals queues out."""
        changes, asked_s = self._changes, self._clock.steady_s()
        if self._believed() is None:
            self._settling.forget()
        session = self._joined_session()
        if session is None:
            return
        leads = session.leads
        members = tuple(sorted(self._client.get_children(self._nodes.members, self._on_watch)))
        told = self._client.exists(self._nodes.told(self.member))
        if self.member not in members or told is None:
            self._known = None
            session.has_joined = False  # Another party removed its nodes.
            self._poked.set()
            return
        self._client.get_children(self._nodes.leader, self._on_watch)
        leader = next(iter(session.election.contenders()), None)
        if leads and leader != self.member:
            self._known = None
            self._session = None  # Its election node was removed; stand again.
            session.end()
            self._poked.set()
            return
        deal = self._dealt(session, members) if leads else self._heard(leader)
        self._settling.learn(deal, members, self._clock.steady_s())
        self._known = _Known(changes, asked_s, leader)

    def _heard(self, leader: str | None) -> Deal:
        """The leader's deal for this member; nothing, if an earlier leader wrote it."""
        told = self._told(self.member)
        if leader in (None, self.member) or told.leader != leader:
            return Deal(leader, of_all=False)
        return Deal(leader, dict.fromkeys(told.queues, self.member), of_all=False)

    def _joined_session(self) -> _Session | None:
        """The current session with this member's node; None: there is none yet."""
        identity = self._client.client_id
        if identity is None:
            return None
        session = self._session
        if session is None or session.id != identity[0]:
            if session is not None:
                session.end()
            self._ours.add(identity[0])
            election = self._client.Election(self._nodes.leader, self.member)
            session = self._session = _Session(identity[0], election)
        if not session.has_joined:
            for path in (self._nodes.leader, self._nodes.members, self._nodes.communicator):
                self._client.ensure_path(path)
            for path in (self._nodes.told(self.member), self._nodes.member(self.member)):
                if not self._make_own(path, session):
                    return None
            session.has_joined = True
        if not session.stands and not session.ended.is_set():
            session.stands = True
            stands = threading.Thread(target=self._stand, args=(session,), daemon=True)
            stands.start()
        return session

    def _make_own(self, path: str, session: _Session) -> bool:
        """Makes the node this session's; False while another process has it."""
        try:
            self._client.create(path, b"", ephemeral=True)
        except NodeExistsError:
            there = self._client.exists(path)
            owner = None if there is None else there.ephemeralOwner
            if owner == session.id:
                return True
            if owner not in self._ours:
                raise NodeExistsError(
                    f"another process is the member {self.member}, or was a moment ago"
                ) from None
            self._client.delete(path)
            self._client.create(path, b"", ephemeral=True)
        return True

    def _stand(self, session: _Session) -> None:
        """Stands for leader and leads until the session ends, in a thread of its own."""
        try:
            session.election.run(self._lead, session)
        except Exception as error:  # As above.
            _log.debug("an election failed", extra={"fields": {"error": repr(error)}})
        session.stands = session.leads = False
        self._poked.set()

    def _lead(self, session: _Session) -> None:
        _log.info("this member now leads", extra={"fields": {"member": self.member}})
        session.leads = True
        self._poked.set()
        session.ended.wait()

    def _told(self, member: str) -> Told:
        """A member's queues, whichever leader wrote them."""
        try:
            data, _ = self._client.get(self._nodes.told(member), self._on_watch)
        except NoNodeError:
            return NOTHING
        return parse_told(data)

    def _dealt(self, session: _Session, members: tuple[str, ...]) -> Deal:
        """Deals the queues out if that is due or members have changed."""
        now_s = self._clock.steady_s()
        if now_s < session.deal_again_s and members == session.dealt_to:
            return session.dealt
        queues: dict[str, set[str]] = {each: set() for each in members if each != self.member}
        before = session.dealt
        if before is NO_DEAL:
            # The first deal of a new leader: each member keeps what the last leader gave it.
            had = {queue: each for each in members for queue in self._told(each).queues}
            before = Deal(None, had, of_all=False)
        for queue, each in assign(self._queues, members, before).items():
            if each != self.member:
                queues[each].add(queue)
        dealt: dict[str, str] = {}
        for each, its in queues.items():
            data, told = print_told(self.member, its)
            with contextlib.suppress(NoNodeError):  # It is gone: the next deal leaves it out.
                self._client.set(self._nodes.told(each), data)
            dealt |= dict.fromkeys(told, each)
        session.dealt, session.dealt_to = Deal(self.member, dealt), members
        session.deal_again_s = now_s + self._pacing.assign_s
        return session.dealt


def _client_of(address: Address) -> Any:
    given = {} if address.credentials is None else {
        "auth_data": [("digest", address.credentials)],
        "default_acl": CREATOR_ALL_ACL,
    }  # fmt: skip
    again = {"max_tries": -1, "max_delay": min(_CONNECTS_AGAIN_S_MAX, address.session_s)}
    return KazooClient(
        address.hosts, timeout=address.session_s, connection_retry=again, logger=_kazoo_log, **given
    )
