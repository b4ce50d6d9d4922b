"""The bench of mq beside others runs whole: a table, a picture, and a word on who is left out."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from harness.needs import program

TOP = Path(__file__).parents[2]
RATE = re.compile(r"\| (\S.*?): (publish|publish \+ fetch \+ delete) +\| +([\d,]+) \(")


@pytest.mark.certificate
def test_a_run_gives_a_table_and_a_picture(tmp_path: Path) -> None:
    program("cc")
    picture = tmp_path / "picture.svg"
    flags = ("--rounds", "1", "--seconds", "1", "--warm", "0", "--only", "beanstalkd")
    done = subprocess.run(
        [
            sys.executable, "-m", "deploy.bench.others", *flags,
            "--root", str(tmp_path), "--picture", str(picture),
        ],
        cwd=TOP, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rates = {(name, what): rate for name, what, rate in RATE.findall(done.stdout)}
    measured = {"mq", "mq --standalone"}
    if shutil.which("beanstalkd") is not None:
        measured.add("beanstalkd -f0")
    else:
        assert "**beanstalkd -f0** is left out: not installed" in done.stdout
    assert measured <= {name for name, _ in rates}
    assert len(rates) == 2 * len({name for name, _ in rates})
    words = {each.text for each in ElementTree.parse(picture).iter() if each.tag.endswith("text")}
    assert {name for name, _ in rates} | set(rates.values()) <= words
    assert list(tmp_path.iterdir()) == [picture]
