"""Who a client certificate is: real certificates, and the file that says what they may do."""

import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from harness.certificates import HERE, Authority, Pair
from hypothesis import given
from hypothesis import strategies as st

from mq.access.callers import Right
from mq.access.certificates import ClientsFile, names_of, parse_clients
from mq.access.tls import ServerTls, TlsFiles
from mq.model.errors import StartupError

FILE = """
[[client]]
certificate = "URI=spiffe://shop/worker"
name = "worker"
grants = ["orders-*:publish,consume"]

[[client]]
certificate = "CN=worker-1"
grants = ["*:admin"]
"""


def peer(authority: Authority, client: Pair) -> dict[str, Any]:
    """A client's certificate as a server has it after a real handshake."""
    server = authority.pair("server", *HERE)
    context = ServerTls(TlsFiles(server.cert, server.key, authority.ca)).context
    ours, theirs = socket.socketpair()

    def shake() -> None:
        with client.load(authority.context()).wrap_socket(
            theirs, server_hostname="localhost"
        ) as secured:
            secured.recv(1)

    thread = threading.Thread(target=shake)
    thread.start()
    with context.wrap_socket(ours, server_side=True) as secured:
        found = secured.getpeercert()
        secured.send(b".")
        thread.join()
    assert found is not None
    return found


def test_names_of_a_certificate_are_its_subject_s_and_its_alternatives(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.pair(
        "worker-1",
        x509.UniformResourceIdentifier("spiffe://shop/worker"),
        x509.DNSName("worker.shop"),
        x509.RFC822Name("who@shop"),
    )
    found = peer(authority, client)
    assert set(names_of(found)) == {
        "CN=worker-1", "URI=spiffe://shop/worker", "DNS=worker.shop", "EMAIL=who@shop",
    }  # fmt: skip
    caller = parse_clients(FILE).caller(found)
    assert caller is not None
    assert caller.name == "worker"  # The first in the file, whichever name comes first.
    assert caller.may(Right.CONSUME, "orders-7")
    assert not caller.may(Right.ADMIN, "orders-7")


def test_a_subject_with_two_names_has_none(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    two = authority.pair("two", subject=("worker-1", "worker-2"))
    found = peer(authority, two)
    assert names_of(found) == ()
    assert parse_clients(FILE).caller(found) is None


def test_a_name_is_not_taken_for_one_of_another_kind(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    client = authority.pair("odd", x509.DNSName("worker-1"), subject=("spiffe://shop/worker",))
    assert parse_clients(FILE).caller(peer(authority, client)) is None


def test_nobody_is_who_shows_none_or_one_that_is_not_known() -> None:
    clients = parse_clients(FILE)
    assert clients.caller(None) is None
    assert clients.caller({}) is None
    assert clients.caller({"subject": ((("commonName", "worker-2"),),)}) is None
    assert clients.caller({"subject": ((("commonName", "worker-1"),),)}) is not None
    assert parse_clients("").caller({"subject": ((("commonName", "worker-1"),),)}) is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[[client]", "not valid TOML"),
        ("[clients]", "unknown"),
        ("client = 7", "must be a list of"),
        ("client = [7]", "client 1: must be a table of"),
        ('[[client]]\ncertificate = "worker"\ngrants = []', "begins with CN= or"),
        ("[[client]]\ngrants = []", "client 1: certificate"),
        ('[[client]]\ncertificate = "CN=a"', "client 1: grants must be a list"),
        ('[[client]]\ncertificate = "CN=a"\ngrants = ["typo"]', "client 1: .*typo"),
        ('[[client]]\ncertificate = "CN=a"\nname = ""\ngrants = []', "client 1: name"),
        (
            '[[client]]\ncertificate = "CN=a"\ngrant = []\ngrants = []',
            "client 1: must be a table of",
        ),
        (FILE + '[[client]]\ncertificate = "CN=worker-1"\ngrants = []', "client 3:.*twice"),
    ],
)
def test_a_slip_of_the_hand_is_told_of(text: str, why: str) -> None:
    with pytest.raises(StartupError, match=why):
        parse_clients(text)


@given(st.text())
def test_whatever_a_file_holds_is_clients_or_refused(text: str) -> None:
    try:
        found = parse_clients(text)
    except StartupError:
        return
    assert found.callers == {}


def test_a_file_is_read_again_when_asked_and_a_bad_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "clients.toml"
    with pytest.raises(StartupError, match="No such file"):
        ClientsFile(path)
    path.write_text(FILE)
    shown: dict[str, Any] = {"subject": ((("commonName", "worker-1"),),)}
    clients = ClientsFile(path)
    path.write_text("torn")
    assert not clients.reload()
    assert clients.caller(shown) is not None
    path.write_text("")
    assert clients.reload()
    assert clients.caller(shown) is None
    path.chmod(0o666)
    with pytest.raises(StartupError, match="mode 0666"):
        ClientsFile(path)
    path.chmod(0o644)
    # Python's parser says this in an error of its own.
    path.write_text("[[client]]\ncertificate = " + "1" * 5000)
    with pytest.raises(StartupError, match="not valid TOML"):
        ClientsFile(path)
    path.write_bytes(b"\xff")
    with pytest.raises(StartupError, match="UTF-8"):
        ClientsFile(path)


def test_a_context_that_asks_nobody_knows_nobody(tmp_path: Path) -> None:
    server = Authority(tmp_path).pair("server", *HERE)
    context = ServerTls(TlsFiles(server.cert, server.key)).context
    assert context.verify_mode is ssl.CERT_NONE
