"""Where mq may listen without asking anybody who they are, and what `Access` says of callers."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from harness.clock import FakeClock

from mq.access.callers import ANONYMOUS, Caller, parse_grants
from mq.access.errors import Unauthenticated
from mq.access.tokens import Entry, TokenVerifier, digest_of
from mq.daemon.admission import check_exposure, is_loopback
from mq.http.access import Access
from mq.model.errors import StartupError
from mq.runtime.server_settings import ServerSettings

ROOT = Path("/nowhere")


@pytest.mark.parametrize(
    ("address", "is_own"),
    [
        ("127.0.0.1", True),
        ("127.255.0.3", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("::ffff:10.0.0.1", False),
        ("10.0.0.1", False),
        ("fe80::1%eth0", False),
        ("128.0.0.1", False),
    ],
)
def test_which_addresses_are_this_machine_s_own(address: str, is_own: bool) -> None:
    assert is_loopback(address) is is_own


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_on_loopback_nobody_need_be_asked(address: str) -> None:
    check_exposure(ServerSettings(ROOT, address=address))


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "", "192.0.2.1"])
def test_beyond_it_access_is_controlled_or_it_is_meant(address: str) -> None:
    with pytest.raises(StartupError, match=r"--tokens.*--allow-anonymous"):
        check_exposure(ServerSettings(ROOT, address=address))
    check_exposure(ServerSettings(ROOT, address=address, allow_anonymous=True))
    check_exposure(ServerSettings(ROOT, address=address, tokens=ROOT))


def test_one_of_both_is_said() -> None:
    with pytest.raises(StartupError, match="limit callers; use either"):
        check_exposure(ServerSettings(ROOT, tokens=ROOT, allow_anonymous=True))


@pytest.fixture
def sockets(tmp_path: Path) -> Iterator[dict[str, socket.socket]]:
    """Those that a service manager may hand on."""
    with ExitStack() as stack:
        path = stack.enter_context(socket.socket(socket.AF_UNIX))
        path.bind(str(tmp_path / "mq.sock"))
        path.listen()
        found = {"path": path}
        for name, address in (("here", "127.0.0.1"), ("everywhere", "0.0.0.0")):
            found[name] = stack.enter_context(socket.create_server((address, 0)))
        yield found


@pytest.mark.parametrize(
    ("names", "is_own"),
    [
        (["path"], True),
        (["here"], True),
        (["here", "path"], True),
        (["everywhere"], False),
        (["path", "here", "everywhere"], False),
    ],
)
def test_of_given_sockets_each_counts_and_the_address_does_not(
    sockets: dict[str, socket.socket], names: list[str], is_own: bool
) -> None:
    descriptors = tuple(sockets[each].fileno() for each in names)
    settings = ServerSettings(ROOT, address="0.0.0.0", descriptors=descriptors)
    if is_own:
        check_exposure(settings)
        return
    with pytest.raises(StartupError, match=r"0\.0\.0\.0 port"):
        check_exposure(settings)
    check_exposure(ServerSettings(ROOT, descriptors=descriptors, allow_anonymous=True))


# Access


def named(name: str) -> Caller:
    return Caller(name, parse_grants(["*:admin"]))


def certified(peer: Any) -> Caller | None:
    return named("of a certificate") if peer == {"subject": "known"} else None


def over(peer: Any) -> asyncio.BaseTransport:
    """A transport on which TLS has seen this certificate."""
    return asyncio.BaseTransport(extra={"peercert": peer})


def access_by(*tokens: str, with_certificates: bool = True) -> Access:
    verifiers = [TokenVerifier([Entry(named(each), digest_of(each))]) for each in tokens]
    return Access(FakeClock(), verifiers, certified if with_certificates else None)


def test_without_verifiers_anybody_may_everything() -> None:
    access = Access(FakeClock())
    assert not access.is_on
    assert access.caller(["Bearer x"], None) is ANONYMOUS


def test_of_several_verifiers_any_may_know_the_token() -> None:
    access = access_by("a", "b", with_certificates=False)
    assert access.caller(["Bearer a"], None) == named("a")
    assert access.caller(["Bearer b"], over({"subject": "known"})) == named("b")
    with pytest.raises(Unauthenticated):
        access.caller(["Bearer c"], None)
    with pytest.raises(Unauthenticated):
        access.caller([], over({"subject": "known"}))


def test_a_certificate_tells_who_asks_where_no_token_does() -> None:
    access = access_by("a")
    known, unknown = over({"subject": "known"}), over({"subject": "other"})
    assert access.caller([], known) == named("of a certificate")
    assert access.caller(["Bearer a"], known) == named("a")
    assert access.caller(["Bearer a"], unknown) == named("a")
    for values, transport in (([], unknown), ([], over(None)), ([], None), (["Bearer x"], known)):
        with pytest.raises(Unauthenticated) as refused:
            access.caller(values, transport)
        assert refused.value.shown is bool(values)


def test_what_is_replaced_counts_no_more() -> None:
    access = access_by("a")
    before = access.generation
    access.replace([], certified)
    assert access.generation != before
    assert access.is_on
    with pytest.raises(Unauthenticated):
        access.caller(["Bearer a"], None)
