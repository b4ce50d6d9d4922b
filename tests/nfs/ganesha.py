"""The process that keeps a real NFS server, nfs-ganesha, and stands between it and its clients.

    python -m nfs.ganesha WORK SEED LOSSES

Exports `WORK/server` as `/export`, by way of the port that it logs. So many answers to RENAME and
REMOVE are lost, when chance says so: what was asked is done, the answer is swallowed, the server
killed (kill -9) and another one started, which knows nothing of it. The client, which hears
nothing, asks that one again, and is told that nothing is there: both are logged. A process of its
own, since whoever waits for the mount cannot start its server. Ends when it is killed, and the
server with it.
"""

import asyncio
import contextlib
import itertools
import random
import socket
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from harness.waiting import comes_true

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 20
# How many such calls are answered before the next answer is lost.
APART = (15, 40)

# Operations of NFS 4 (RFC 7530, 16.25 and 16.26) by their numbers, and the words of what each
# answers: operation, status, and a folder's change (whether atomic, before, after) or two.
OPERATIONS = {"RENAME": (29, 12), "REMOVE": (28, 7)}
ORDER = ("RENAME", "REMOVE", "RENAME")
_OK, _NOT_THERE = 0, 2

_SETTINGS = """
NFS_CORE_PARAM { Protocols = 4; NFS_Port = %(port)d; Bind_addr = 127.0.0.1; Enable_NLM = false;
  Enable_RQUOTA = false; Enable_UDP = false; }
NFSV4 { Graceless = true; Lease_Lifetime = 60; Only_Numeric_Owners = true; Minor_Versions = 0;
  RecoveryBackend = fs; RecoveryRoot = %(work)s/recovery; }
NFS_KRB5 { Active_krb5 = false; }
EXPORT { Export_Id = 1; Path = %(work)s/server; Pseudo = /export; Access_Type = RW;
  Squash = No_Root_Squash; SecType = sys; Transports = TCP; Protocols = 4; FSAL { Name = VFS; } }
"""


def is_done(answer: bytes, name: str) -> bool:
    """Whether it says that this was done, as the last operation that was asked for."""
    operation, words = OPERATIONS[name]
    return answer[-4 * words :].startswith(struct.pack(">II", operation, _OK))


def is_not_there(answer: bytes, name: str) -> bool:
    """Whether it says that there was nothing to do this to."""
    return answer.endswith(struct.pack(">II", OPERATIONS[name][0], _NOT_THERE))


class Losses:
    """Which answers are lost: pure decisions."""

    def __init__(self, seed: int, count: int) -> None:
        self._chance = random.Random(seed)
        self._coming: Iterator[str] = itertools.islice(itertools.cycle(ORDER), count)
        self._next()

    def _next(self) -> None:
        self._name = next(self._coming, None)
        self._left = self._chance.randint(*APART)

    def of(self, answer: bytes) -> str | None:
        """What is lost with this answer, if it is lost."""
        self._left -= any(is_done(answer, name) for name in OPERATIONS)
        if self._name is None or self._left > 0 or not is_done(answer, self._name):
            return None
        lost = self._name
        self._next()
        return lost


class Server:
    """The server, one after the other."""

    def __init__(self, work: Path) -> None:
        self._work = work
        for name in ("server", "recovery"):
            (work / name).mkdir()
        with socket.create_server((HOST, 0)) as free:
            self.port = free.getsockname()[1]
        settings = _SETTINGS % {"port": self.port, "work": work}
        (work / "ganesha.conf").write_text(settings)

    async def start(self) -> None:
        """Until it listens. It dies with this process."""
        files = {"-f": "ganesha.conf", "-L": "ganesha.log", "-p": "ganesha.pid"}
        (self._work / "ganesha.pid").unlink(missing_ok=True)
        flags = [word for flag, name in files.items() for word in (flag, str(self._work / name))]
        command = ["setpriv", "--pdeathsig", "KILL", "ganesha.nfsd", "-F", *flags]
        self._process = await asyncio.create_subprocess_exec(*command)
        await comes_true(self._is_up, "a server that listens")

    async def _is_up(self) -> bool:
        assert self._process.returncode is None, (self._work / "ganesha.log").read_text()
        try:
            _, there = await asyncio.open_connection(HOST, self.port)
        except OSError:
            return False
        there.close()
        return True

    async def kill(self) -> None:
        self._process.kill()
        await self._process.wait()


class Relay:
    """Passes on what clients ask, and what they are answered but for what is lost."""

    def __init__(self, server: Server, losses: Losses) -> None:
        self._server = server
        self._losses = losses
        self._is_down = False
        self._asked_again: str | None = None

    async def serve(self, asking: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        """Serves one connection of a client; while the server is down, it is closed at once."""
        with contextlib.closing(client), contextlib.suppress(OSError, EOFError):
            if self._is_down:
                return
            answers, server = await asyncio.open_connection(HOST, self._server.port)
            with contextlib.closing(server):
                questions = asyncio.create_task(_pass_on(asking, server))
                try:
                    while (answer := await _read_record(answers)) and not await self._lose(answer):
                        client.write(answer)
                        await client.drain()
                finally:
                    questions.cancel()

    async def _lose(self, answer: bytes) -> bool:
        """Whether it is lost; another server is then up."""
        if self._asked_again and is_not_there(answer, self._asked_again):
            _log(f"refused {self._asked_again}")
            self._asked_again = None
        lost = self._losses.of(answer)
        if lost is not None:
            self._is_down = True
            await self._server.kill()
            await self._server.start()
            self._is_down = False
            self._asked_again = lost
            _log(f"lost {lost}")
        return lost is not None


async def _read_record(stream: asyncio.StreamReader) -> bytes:
    """One message as RPC marks it (RFC 5531, 11): a length before each piece, with a bit in the
    last one's.
    """
    record = b""
    while True:
        mark = await stream.readexactly(4)
        length = int.from_bytes(mark, "big")
        record += mark + await stream.readexactly(length & 0x7FFFFFFF)
        if length >> 31:
            return record


async def _pass_on(asking: asyncio.StreamReader, server: asyncio.StreamWriter) -> None:
    """Until the client closes its end."""
    with contextlib.closing(server), contextlib.suppress(OSError):
        while asked := await asking.read(CHUNK_BYTES):
            server.write(asked)
            await server.drain()


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


async def serve(work: str, seed: str, losses: str) -> None:
    """Serves until it is killed."""
    server = Server(Path(work))
    await server.start()
    relay = Relay(server, Losses(int(seed), int(losses)))
    listener = await asyncio.start_server(relay.serve, HOST, 0)
    _log(f"listening port={listener.sockets[0].getsockname()[1]}")
    await listener.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(*sys.argv[1:]))
