"""HTTP.md's table of problems is the code's."""

import re
from pathlib import Path

import mq.http
from mq.http.problems import OTHERS, PROBLEMS

PAGE = Path(mq.http.__file__).with_name("HTTP.md").read_text(encoding="utf-8")


def test_the_documented_problems_are_the_code_s() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \| (yes|no) \|", PAGE, re.MULTILINE)
    in_code = {
        (problem.slug, str(problem.status), "yes" if problem.retryable else "no")
        for problem in (*PROBLEMS.values(), *OTHERS)
    }
    assert set(rows) == in_code
    assert len(rows) == len(in_code)
