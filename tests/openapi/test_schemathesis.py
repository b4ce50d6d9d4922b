"""Schemathesis asks a real daemon what the document that it serves allows and what it does not,
each request alone and in chains, with all checks that it has, and finds nothing. The daemon asks
for a token, which it shows, and leaves out to see it refused.

`MQ_TIMES=10` has it draw ten times as much. What it draws depends on SEED alone, but for what it
takes over from answers.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.access import Tokens
from harness.chance import TIMES
from harness.processes import Processes

from mq.protocol.endpoints import ENDPOINTS

HERE = Path(__file__).parent
TOP = HERE.parent.parent
DOCUMENT = "/-/openapi.json"
SEED = 7
EXAMPLES = 15
PATIENCE_S = 300 * TIMES


@pytest.mark.certificate
@pytest.mark.timeout(PATIENCE_S + 30)
def test_schemathesis_finds_nothing(daemons: Processes, root: Path, tmp_path: Path) -> None:
    tokens = Tokens(tmp_path / "tokens")
    token = tokens.add("schemathesis", "*:admin")
    mq = daemons.mq(root, "--standalone", "--tokens", str(tokens.path))
    for name in ("hooks.py", "schemathesis.toml"):
        shutil.copy(HERE / name, tmp_path)
    report = tmp_path / "report.ndjson"
    found = subprocess.run(
        [
            *(sys.executable, "-m", "schemathesis.cli", "--config-file", "schemathesis.toml"),
            *("run", f"{mq.url}{DOCUMENT}", "--continue-on-failure", "--no-color"),
            *("--header", f"Authorization: Bearer {token}"),
            *("--seed", str(SEED), "--max-examples", str(EXAMPLES * TIMES)),
            *("--report", "ndjson", "--report-ndjson-path", str(report)),
        ],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{TOP}{os.pathsep}{tmp_path}", "MQ_TOKEN": token},
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    assert "No issues found" in found.stdout, found.stdout
    every = {(each.method, each.path) for each in ENDPOINTS}
    seen = {(method, path) for method, path, status in answers(report) if status < 300}
    # But for what it asked to begin with, a WebSocket, and what needs a consumer that waits.
    assert seen >= every - {
        *(("GET", DOCUMENT), ("GET", "/-/consume")),
        ("DELETE", "/{queue}/consumers/{consumer}"),
    }


def answers(report: Path) -> Iterator[tuple[str, str, int]]:
    """Method, path as the document has it, and status of all that was asked."""
    for line in report.read_text(encoding="utf-8").splitlines():
        recorder = json.loads(line).get("ScenarioFinished", {}).get("recorder", {})
        for case, exchange in recorder.get("interactions", {}).items():
            if exchange["response"] is not None:
                asked = recorder["cases"][case]["value"]
                yield asked["method"], asked["path"], exchange["response"]["status_code"]
