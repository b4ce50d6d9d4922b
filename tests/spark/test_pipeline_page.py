"""The page on the pipeline: its five minutes, as they stand there, one command after the other."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness.processes import Processes

import mq.spark

PAGE = Path(mq.spark.__file__).with_name("PIPELINE.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"```(?P<kind>sh|python|)\n(?P<text>.*?)```", re.DOTALL)
PYTHON = f'python() {{ {sys.executable} "$@"; }}'
# Done by who runs the tests: the installed package, a daemon; and the test of the example.
DONE_ELSEWHERE = ("pip install", "tests/examples/cities.py")


def five_minutes() -> list[tuple[str, str]]:
    section = re.search(r"^## From nothing .*?(?=^## )", PAGE, re.DOTALL | re.MULTILINE)
    assert section is not None
    return [(block["kind"], block["text"]) for block in BLOCK.finditer(section[0])]


def as_shown(text: str) -> "re.Pattern[str]":
    return re.compile(".*".join(re.escape(part) for part in text.strip().split("...")), re.DOTALL)


@pytest.mark.certificate
def test_the_five_minutes(daemons: Processes, root: Path, tmp_path: Path) -> None:
    mq = daemons.mq(root, "--standalone")
    said = ""
    for kind, text in five_minutes():
        here = re.sub(r"/tmp/(mq\b)?", lambda path: str(root) if path[1] else f"{tmp_path}/", text)
        here = here.replace("localhost:8080", mq.url)
        if kind == "python":
            (tmp_path / "drain.py").write_text(here)
        elif kind == "":
            assert as_shown(here).search(said), f"not {here} but {said}"
        elif not any(words in text for words in DONE_ELSEWHERE):
            said = run("bash", "-euo", "pipefail", "-c", f"{PYTHON}\n{here}")
    # The last of Python: back into the queue that is empty.
    run(sys.executable, str(tmp_path / "drain.py"))
    assert '"ready": 10000' in run("curl", "-sSf", f"{mq.url}/orders")


def run(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
