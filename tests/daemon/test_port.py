"""The port that several processes share: who may have it, and who may not."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from harness.needs import cannot_run

from mq.daemon.port import HeldPort, hold_port
from mq.model.errors import StartupError

HERE = "127.0.0.1"


@contextlib.contextmanager
def _held(address: str = HERE, port: int = 0) -> Iterator[HeldPort]:
    held = hold_port(address, port)
    try:
        yield held
    finally:
        held.release()


def _listener(
    port: int, reuse_port: bool, address: str = HERE, reuse_address: bool = True
) -> socket.socket:
    """As servers listen: asyncio's ask for SO_REUSEADDR always."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    made = socket.socket(family)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, reuse_address)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, reuse_port)
    try:
        made.bind((address, port))
        made.listen()
    except OSError:
        made.close()
        raise
    return made


def _need(address: str) -> None:
    """IPv6, where the address is one of its own, or all there are."""
    if ":" in address or not address:
        try:
            _listener(0, False, "::1").close()
        except OSError:
            cannot_run("needs IPv6")


def _leave_connections(reuse_port: bool) -> tuple[int, socket.socket, socket.socket]:
    """A port whose server is gone, one of its connections waiting for its time to pass, another
    still open; and that one's two ends.
    """
    with _listener(0, reuse_port) as server:
        port = server.getsockname()[1]
        with socket.create_connection((HERE, port)) as client:
            server.accept()[0].close()
            assert client.recv(1) == b""
        client = socket.create_connection((HERE, port))
        return port, client, server.accept()[0]


def test_several_may_listen_on_a_held_port() -> None:
    with _held() as held, _listener(held.number, True), _listener(held.number, True):
        pass


@pytest.mark.parametrize("reuse_address", [False, True])
def test_nobody_else_may_listen_on_a_held_port(reuse_address: bool) -> None:
    with _held() as held:
        with pytest.raises(OSError, match="in use"):
            _listener(held.number, False, reuse_address=reuse_address)
        with _listener(held.number, True), pytest.raises(OSError, match="in use"):
            _listener(held.number, False, reuse_address=reuse_address)
        with pytest.raises(OSError, match="in use"):
            _listener(held.number, False, reuse_address=reuse_address)


def test_a_held_port_is_held_once() -> None:
    with _held() as held:
        with pytest.raises(
            StartupError, match=f"cannot listen on {HERE} port {held.number}: .*use"
        ):
            hold_port(HERE, held.number)
        with _listener(held.number, True), pytest.raises(StartupError):
            hold_port(HERE, held.number)
        with pytest.raises(StartupError):
            hold_port(HERE, held.number)


@pytest.mark.parametrize("reuse_port", [False, True])
@pytest.mark.parametrize(
    ("listens", "wanted"),
    [
        (HERE, HERE),
        ("0.0.0.0", HERE),
        (HERE, "0.0.0.0"),
        (HERE, ""),
        ("::1", "::1"),
        ("::", "::1"),
        ("::1", ""),
        (HERE, "localhost"),
    ],
)
def test_where_somebody_listens_nobody_holds(listens: str, wanted: str, reuse_port: bool) -> None:
    _need(listens)
    _need(wanted)
    with _listener(0, reuse_port, listens) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(StartupError, match=rf"cannot listen on {wanted} port {port}: .*in use"):
            hold_port(wanted, port)


def test_another_address_s_port_is_free() -> None:
    with _listener(0, False, "127.0.0.2") as taken, _held(HERE, taken.getsockname()[1]):
        pass


@pytest.mark.parametrize("reuse_port", [False, True])
def test_connections_that_are_left_do_not_keep_the_port(reuse_port: bool) -> None:
    port, *ends = _leave_connections(reuse_port)
    try:
        with pytest.raises(OSError, match="in use"):  # Else this would show nothing.
            _listener(port, False, reuse_address=False)
        with _held(HERE, port):
            for _ in range(2):
                with pytest.raises(StartupError):
                    hold_port(HERE, port)
                with pytest.raises(OSError, match="in use"):
                    _listener(port, False)
                with _listener(port, True), _listener(port, True):
                    pass
    finally:
        for end in ends:
            end.close()


def test_of_those_that_want_a_left_port_at_once_one_at_most_has_it() -> None:
    port, *ends = _leave_connections(True)
    barrier = threading.Barrier(4)

    def want() -> HeldPort | None:
        barrier.wait()
        try:
            return hold_port(HERE, port)
        except StartupError:
            return None

    held_by_one = 0
    try:
        with ThreadPoolExecutor(barrier.parties) as pool:
            for _ in range(300):
                wanting = [pool.submit(want) for _ in range(barrier.parties)]
                held = [each for each in (future.result() for future in wanting) if each]
                for each in held:
                    each.release()
                assert len(held) <= 1
                held_by_one += len(held)
    finally:
        for end in ends:
            end.close()
    assert held_by_one > 0


def test_a_held_port_accepts_nobody() -> None:
    port, *ends = _leave_connections(True)
    try:
        with _held(HERE, port), socket.socket() as client:
            assert client.connect_ex((HERE, port)) != 0
    finally:
        for end in ends:
            end.close()


def test_every_address_has_one_and_the_same_free_port() -> None:
    _need("")
    with _held("") as held:
        for address in (HERE, "::1"):
            with pytest.raises(OSError, match="in use"):
                _listener(held.number, False, address)
            with _listener(held.number, True, address):
                pass


def test_a_released_port_is_free() -> None:
    with _held() as held:
        pass
    with _listener(held.number, False):
        pass


@pytest.mark.parametrize("address", ["nowhere.invalid", "192.0.2.1"])
def test_an_address_that_is_not_here_is_an_error(address: str) -> None:
    with pytest.raises(StartupError, match=f"cannot listen on {address} port 0: "):
        hold_port(address, 0)
