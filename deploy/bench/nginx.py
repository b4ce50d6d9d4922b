"""nginx as it comes in Debian, serving a folder of files."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from deploy.bench.load import BenchError
from deploy.bench.others.rival import free_port, process

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
    port = free_port()
    configuration = work / "nginx.conf"
    configuration.write_text(_CONFIGURATION.format(work=work, files=files, port=port))
    told = (found, "-e", str(work / "error.log"), "-p", str(work), "-c", str(configuration))
    with process(work, port, *told):
        yield f"http://127.0.0.1:{port}"
