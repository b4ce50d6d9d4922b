"""Problems as answers. Which error is which problem is said by `mq.protocol.problems`."""

from mq.http.answers import Answer, json_answer
from mq.model.errors import MqError
from mq.protocol.problems import (
    MEDIA_TYPE,
    Problem,
    facts_of,
    problem_for,
    problem_headers,
    problem_members,
)


def problem_answer(problem: Problem, headers: dict[str, str] | None = None) -> Answer:
    """A problem that no error stands for, as an answer."""
    content = problem_members(problem, {})
    headers = {**(headers or {}), **problem_headers(problem)}
    return json_answer(content, problem.status, headers, MEDIA_TYPE, problem.closes)


def error_answer(error: MqError) -> Answer:
    """The answer to an error: the fields of its class are all that a client may know of it. They
    fill its problem's detail, and those that are for programs become members beside the standard
    ones.
    """
    problem = problem_for(error)
    content = problem_members(problem, facts_of(error))
    headers = problem_headers(problem, error)
    return json_answer(content, problem.status, headers, MEDIA_TYPE, problem.closes)
