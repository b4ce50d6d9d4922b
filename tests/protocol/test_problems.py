"""HTTP.md's table of problems is the code's, and every problem has a whole sentence to say."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

import mq.http
from mq.model.errors import MqError
from mq.protocol.problems import OTHERS, PROBLEMS, Problem, facts_of, problem_members

PAGE = Path(mq.http.__file__).with_name("HTTP.md").read_text(encoding="utf-8")


def test_the_documented_problems_are_the_code_s() -> None:
    table = PAGE[PAGE.index("<!-- table: problems -->") :]
    (retryable,) = re.findall(r"`retryable`\s+is\s+true\s+of\s+([0-9, and]+)\.", PAGE)
    rows = [
        (slug, int(status), status in retryable)
        for status, problems in re.findall(r"^\| (\d{3}) \| (.*) \|$", table, re.MULTILINE)
        for slug in re.findall(r"`([a-z{}-]+)`", re.sub(r" \(.*?\)", "", problems))
    ]
    in_code = {
        (problem.slug, problem.status, problem.retryable)
        for problem in (*PROBLEMS.values(), *OTHERS)
    }
    assert set(rows) == in_code
    assert len(rows) == len(in_code)


def sample(kind: type[MqError]) -> MqError:
    """An error of the class, with 7 for each of its facts."""
    given: dict[str, Any] = {}
    if hasattr(kind, "__dataclass_fields__"):
        named: Any = kind
        for each in fields(named):
            if each.init and each.name != "known":
                given[each.name] = "7" if "str" in str(each.type) else 7
    return kind(**given)


@pytest.mark.parametrize("kind", PROBLEMS, ids=lambda kind: kind.__name__)
def test_a_detail_is_sentences_without_gaps(kind: type[MqError]) -> None:
    says(PROBLEMS[kind], facts_of(sample(kind)))


@pytest.mark.parametrize("problem", OTHERS, ids=lambda problem: problem.slug)
def test_a_detail_without_facts_is_sentences_too(problem: Problem) -> None:
    says(problem, {})


def says(problem: Problem, facts: dict[str, object]) -> None:
    detail = str(problem_members(problem, facts)["detail"])
    assert re.fullmatch(r"[A-Z0-9].*\.", detail)
    assert "  " not in detail
    assert ".." not in detail
