"""A real nginx between a test's client and its mq."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from deploy.bench.others.rival import free_port
from harness.needs import program
from harness.processes import PATIENCE_S
from harness.waiting import comes_true

_CONFIGURATION = """
daemon off;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 64; }}
http {{
    access_log off;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    {sites}
}}
"""
_SITE = """
server {{
    listen 127.0.0.1:{port};
    location / {{
        proxy_pass http://127.0.0.1:{upstream};
        proxy_http_version 1.1;
        proxy_set_header Connection "";
    }}
}}
"""


@contextlib.asynccontextmanager
async def nginx(upstream: int, work: Path) -> AsyncIterator[int]:
    """Passes requests on to a port of this machine; its own port. `work` is a folder."""
    port = free_port()
    async with serving(_SITE.format(port=port, upstream=upstream), port, work):
        yield port


@contextlib.asynccontextmanager
async def serving(sites: str, port: int, work: Path) -> AsyncIterator[None]:
    """An nginx with what these say of its sites, one of which listens on this port."""
    nginx = program("nginx")
    path = work / "nginx.conf"
    path.write_text(_CONFIGURATION.format(work=work, sites=sites))
    process = await asyncio.create_subprocess_exec(
        nginx, "-e", str(work / "error.log"), "-p", str(work), "-c", str(path)
    )
    try:
        await comes_true(lambda: _is_there(process, port), "nginx")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        async with asyncio.timeout(PATIENCE_S):
            await process.wait()


async def _is_there(process: asyncio.subprocess.Process, port: int) -> bool:
    assert process.returncode is None, "nginx ended"
    with contextlib.suppress(ConnectionError):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.close()
        await writer.wait_closed()
        return True
    return False
