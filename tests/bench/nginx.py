"""nginx as it comes in Debian, serving a folder of files."""

import contextlib
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.bench.load import BenchError

_PATIENCE_S: Final = 10.0
# One worker a core, files by sendfile, and no connection closed for having asked often.
_CONFIGURATION: Final = """
daemon off;
user root;
worker_processes auto;
pid {work}/pid;
error_log {work}/error.log;
events {{ worker_connections 512; }}
http {{
    access_log off;
    sendfile on;
    tcp_nopush on;
    keepalive_requests 1000000000;
    client_body_temp_path {work}/body;
    proxy_temp_path {work}/proxy;
    fastcgi_temp_path {work}/fastcgi;
    uwsgi_temp_path {work}/uwsgi;
    scgi_temp_path {work}/scgi;
    server {{ listen 127.0.0.1:{port}; root {files}; }}
}}
"""


@contextlib.contextmanager
def nginx(files: Path, work: Path) -> Iterator[str]:
    """Serves a folder; the URL of it. `work` is a folder that is there. Raises BenchError."""
    found = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if found is None:
        raise BenchError("nginx is missing: apt-get install nginx-light")
    port = _free_port()
    configuration = work / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(work=work, files=files, port=port))
    server = subprocess.Popen(
        [found, "-e", str(work / "error.log"), "-p", str(work), "-c", str(configuration)],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        _wait_for(port, server, work / "error.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


def _wait_for(port: int, server: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end and server.poll() is None:
        with contextlib.suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port)).close()
            return
        time.sleep(0.01)
    raise BenchError(f"nginx does not start: {log.read_text() if log.exists() else ''}")
