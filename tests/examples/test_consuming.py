"""The program of HTTP.md that consumes by a WebSocket, as it stands there."""

import re
import subprocess
import sys
from pathlib import Path

from harness.folders import message_files
from harness.processes import Processes, eventually
from harness.raw import raw_head, raw_request

import mq.http

PAGE = Path(mq.http.__file__).with_name("HTTP.md").read_text(encoding="utf-8")


async def test_the_program_consumes(daemons: Processes, root: Path, tmp_path: Path) -> None:
    mq = daemons.mq(root)
    for queue in ("orders", "events"):
        assert (await raw_request(mq.port, raw_head("PUT", f"/{queue}"))).status == 201
        for n in range(15):
            head = raw_head("POST", f"/{queue}/messages", "Content-Length: 2")
            assert (await raw_request(mq.port, head + f"{n:02}".encode())).status == 201
    [program] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    assert "http://localhost:8080" in program
    path = tmp_path / "consume.py"
    path.write_text(program.replace("http://localhost:8080", mq.url), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-u", str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as running:
        eventually(lambda: len(message_files(root)["remove"]) == 30, "all are acknowledged")
        running.kill()
        said, errors = running.communicate()
    assert errors == ""
    lines = said.splitlines()
    assert lines[0] == "[200, 200]"
    for queue in ("orders", "events"):
        bodies = [line.split()[1] for line in lines if line.startswith(queue)]
        assert bodies == [f"{n:02}" for n in range(15)]
