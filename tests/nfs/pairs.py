"""Two mq, each with an NFS mount of its own."""

from collections.abc import Iterable
from typing import Any

from harness.api import Reply, delete, fetch, make_queue
from harness.server import Serve, Server
from nfs.mounts import Mount

from mq.model.settings import QueueSettings

Pair = tuple[Server, Server]


async def serve_pair(serve: Serve, mounts: Iterable[Mount], visibility_s: float = 30) -> Pair:
    """An mq at each mount, and the queue `q`."""
    settings = QueueSettings(visibility_s=visibility_s)
    one, other = [await serve(root=mount.where / "root", queue=settings) for mount in mounts]
    await make_queue(one)
    return one, other


async def fetched(server: Server) -> Reply | None:
    """What a fetch delivers, if anything."""
    reply = await fetch(server)
    return reply if reply.status == 200 else None


async def deleted(server: Server, message_id: str, **more: Any) -> Reply | None:
    """A delete's answer, unless somebody is at the message: FUSE gives the lock of a file that
    was closed back a moment later.
    """
    reply = await delete(server, message_id, **more)
    return None if b"urn:mq:problem:message-busy" in reply.body else reply
