"""The OpenAPI document is the code's: routes, parameters, bounds and problems, no more, no less."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from harness.api import assert_problem, call
from harness.reference import PAGE, filled
from harness.server import Server
from jsonschema_rs import Draft202012Validator
from multidict import MultiDict
from openapi_spec_validator import validate

from mq.http.openapi.document import HEADERS, document
from mq.model.errors import BadParameter
from mq.protocol.endpoint import Endpoint
from mq.protocol.endpoints import ENDPOINTS
from mq.protocol.problems import OTHERS, PROBLEMS, TYPE_PREFIX
from mq.protocol.query import Choice, Choices, Parameter, Seconds, Whole

HEADERS_MALFORMED = ("headers", "idempotency-key")
DOCUMENT: dict[str, Any] = json.loads(json.dumps(document()))
OPERATIONS = [(each.method, each.path, each) for each in ENDPOINTS]
PARAMETERS = [
    (f"{method} {pattern} {parameter.name}", parameter)
    for method, pattern, operation in OPERATIONS
    for parameter in operation.parameters
]


def described(method: str, pattern: str) -> Any:
    return DOCUMENT["paths"][pattern][method.lower()]


def schemas_in(part: Any) -> Iterator[dict[str, Any]]:
    """Every schema and object within."""
    if isinstance(part, dict):
        yield part
        part = list(part.values())
    if isinstance(part, list):
        for each in part:
            yield from schemas_in(each)


def referred(part: Any, kind: str) -> set[str]:
    """The names of components that are referred to, also by others that are."""
    found: set[str] = set()
    waiting = [part]
    while waiting:
        for each in schemas_in(waiting.pop()):
            match = re.fullmatch(rf"#/components/{kind}/(.*)", str(each.get("$ref", "")))
            if match and match[1] not in found:
                found.add(match[1])
                waiting.append(DOCUMENT["components"][kind][match[1]])
    return found


async def test_it_is_served(server: Server) -> None:
    reply = await call(server, "GET", "/-/openapi.json")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.json() == DOCUMENT
    head = await call(server, "HEAD", "/-/openapi.json")
    assert (head.status, head.body) == (200, b"")
    assert head.headers["Content-Length"] == str(len(reply.body))
    reply = await call(server, "GET", "/-/openapi.json?x=1")
    assert_problem(reply, 400, "unknown-parameter")


@pytest.mark.certificate
def test_it_is_valid() -> None:
    validate(DOCUMENT)
    assert DOCUMENT["openapi"].startswith("3.1.")


def test_its_operations_are_the_endpoints() -> None:
    found = {
        (method.upper(), pattern)
        for pattern, path in DOCUMENT["paths"].items()
        for method in path
        if method != "parameters"
    }
    assert found == {(method, pattern) for method, pattern, _ in OPERATIONS}
    names = [described(*each)["operationId"] for each in found]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("method", "pattern", "operation"), OPERATIONS, ids=[f"{m} {p}" for m, p, _ in OPERATIONS]
)
def test_its_parameters_are_the_code_s(method: str, pattern: str, operation: Endpoint) -> None:
    said = described(method, pattern).get("parameters", [])
    assert {each["name"] for each in said if each["in"] == "query"} == operation.names
    headers = {each.name for each in operation.headers}
    assert {each["name"] for each in said if each["in"] == "header"} == headers
    in_path = {each["name"] for each in DOCUMENT["paths"][pattern].get("parameters", [])}
    assert in_path == set(re.findall(r"\{(\w+)\}", pattern))
    assert all(each["description"] for each in said)


def taken(parameter: Any, value: str) -> bool:
    """Whether what reads the parameter takes the value."""
    try:
        parameter.of(MultiDict({parameter.name: value}))
    except BadParameter:
        return False
    return True


@pytest.mark.parametrize(
    "parameter", [each for _, each in PARAMETERS], ids=[n for n, _ in PARAMETERS]
)
def test_a_parameter_s_schema_has_the_bounds_of_its_reader(parameter: Parameter) -> None:
    schema = parameter.schema
    match parameter:
        case Whole():
            assert taken(parameter, str(schema["minimum"]))
            assert taken(parameter, str(schema["maximum"]))
            assert not taken(parameter, str(schema["minimum"] - 1))
            assert not taken(parameter, str(schema["maximum"] + 1))
        case Seconds():
            assert taken(parameter, str(schema["minimum"]))
            assert not taken(parameter, str(schema["minimum"] - schema["multipleOf"]))
            assert not taken(parameter, str(schema["minimum"] + schema["multipleOf"] / 10))
            assert taken(parameter, str(schema["maximum"]))
            assert not taken(parameter, str(schema["maximum"] + 1))
        case Choice():
            assert all(taken(parameter, word) for word in schema["enum"])
            assert not taken(parameter, "".join([*schema["enum"], "x"]))
        case Choices():
            words = schema["items"]["enum"]
            assert taken(parameter, ",".join(words))
            assert not taken(parameter, ",".join([*words, words[0]]))


def slugs_of_the_code() -> set[str]:
    """Those of all problems, and one for each of what may be malformed."""
    named = {problem.slug for problem in (*PROBLEMS.values(), *OTHERS)}
    malformed = {name for each in ENDPOINTS for name in (*each.names, *HEADERS_MALFORMED)}
    return named - {"bad-{parameter}"} | {f"bad-{each}".replace("_", "-") for each in malformed}


def test_its_problems_are_the_code_s() -> None:
    every = {f"problem-{slug}" for slug in slugs_of_the_code()}
    schemas = DOCUMENT["components"]["schemas"]
    assert {name for name in schemas if name.startswith("problem-")} == every
    # And each is one that some request is answered with, or any whose method is not there.
    answers = [DOCUMENT["paths"], DOCUMENT["components"]["responses"]]
    assert {name for name in referred(answers, "schemas") if name.startswith("problem-")} == every
    for name in every:
        assert schemas[name]["properties"]["type"]["const"] == TYPE_PREFIX + name[len("problem-") :]


def test_a_problem_s_answer_has_its_status() -> None:
    for method, pattern, _ in OPERATIONS:
        for status, answer in described(method, pattern)["responses"].items():
            for name in referred(answer.get("content", {}), "schemas"):
                if name.startswith("problem-") and int(status) >= 400:
                    schema = DOCUMENT["components"]["schemas"][name]
                    assert schema["properties"]["status"]["const"] == int(status)


def test_no_schema_and_no_header_is_left_over() -> None:
    answers = [DOCUMENT["paths"], DOCUMENT["components"]["responses"]]
    assert referred(answers, "schemas") | {"Problem"} == DOCUMENT["components"]["schemas"].keys()
    assert referred(answers, "headers") == HEADERS.keys()


def test_the_tables_of_http_md_are_fresh() -> None:
    """`python -m harness.reference`, in `tests`, writes them."""
    page = PAGE.read_text(encoding="utf-8")
    assert filled(page) == page


def test_examples_are_what_their_schemas_allow() -> None:
    components = {"components": DOCUMENT["components"]}
    tried = 0
    for each in schemas_in(DOCUMENT["paths"]):
        if "example" in each and "schema" in each:
            Draft202012Validator({**each["schema"], **components}).validate(each["example"])
            tried += 1
    for schema in DOCUMENT["components"]["schemas"].values():
        for example in schema.get("examples", ()):
            Draft202012Validator({**schema, **components}).validate(example)
            tried += 1
    assert tried > 10


def test_links_lead_to_operations_with_all_that_their_paths_ask_for() -> None:
    by_name = {described(m, p)["operationId"]: p for m, p, _ in OPERATIONS}
    followed = set()
    for each in schemas_in(DOCUMENT["paths"]):
        for name, link in each.get("links", {}).items():
            assert set(link["parameters"]) == set(re.findall(r"\{(\w+)\}", by_name[name]))
            followed.add(name)
    assert {"publish", "fetch", "read_message", "delete_message"} <= followed
