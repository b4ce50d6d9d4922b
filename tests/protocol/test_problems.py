"""HTTP.md's table of problems is the code's."""

import re
from collections.abc import Iterator
from pathlib import Path

import mq.http
from mq.http.routes import ROUTES
from mq.protocol.problems import OTHERS, PROBLEMS, Problem, slug_of

PAGE = Path(mq.http.__file__).with_name("HTTP.md").read_text(encoding="utf-8")
# What may be malformed beside the query parameters: headers of a request.
HEADERS = {"headers", "idempotency-key"}


def parameters() -> set[str]:
    """Every query parameter of every request, and the headers beside them."""
    return {
        parameter
        for route in ROUTES
        for operation in route.operations.values()
        for parameter in operation.names
    } | HEADERS


def slugs(problem: Problem) -> Iterator[str]:
    """A problem that names a parameter in its type is one for each of them."""
    if "{parameter}" not in problem.slug:
        yield problem.slug
        return
    for parameter in parameters():
        yield slug_of(problem, {"parameter": parameter})


def test_the_documented_problems_are_the_code_s() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \| (yes|no) \|", PAGE, re.MULTILINE)
    in_code = {
        (slug, str(problem.status), "yes" if problem.retryable else "no")
        for problem in (*PROBLEMS.values(), *OTHERS)
        for slug in slugs(problem)
    }
    assert set(rows) == in_code
    assert len(rows) == len(in_code)
