"""What schemathesis is told of mq that no JSON Schema says; its own process loads this module.

Queues, a message and a key that requests name are there when they are asked for; what depends on
more than one value, or on the clock, is not drawn; waits are short. Answers may have no member that
the document does not tell of, and lines of JSON are looked at one by one.
"""

import contextlib
import json
import os
import re
from datetime import UTC, datetime
from typing import Any

import jsonschema_rs
import requests
import schemathesis
from hypothesis import strategies as st
from schemathesis.generation.meta import TestPhase
from schemathesis.generation.modes import GenerationMode

from mq.model.errors import BadName, BadParameter
from mq.model.failure import Failure
from mq.model.names import Key, MessageId
from mq.model.selection import Selection
from mq.model.shovel import Criteria
from mq.protocol.envelopes import ATTRIBUTES

QUEUES = ("orders", "events")
# The document's own examples: by these there is always something.
ID = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab.json"
KEY = "table-7"
SCHEDULE = "nightly"
CRON = "*/10 * * * *"
SELECT = "priority:0..9"
ZONES = ("UTC", "Europe/Berlin", "America/St_Johns", "Australia/Lord_Howe")
WAIT_S_MAX = 0.02
# As far as every file system keeps a due time.
FIRST, LAST = datetime(2031, 1, 1), datetime(2037, 12, 31)
DELAY_S_MAX = 300_000_000
MERGE_PATCH = {"Content-Type": "application/merge-patch+json"}
# Where the first is said, the second is not.
ALONE = (("at", "delay"), ("split", "key"))
ROWS = "application/x-ndjson"
SHAPE = ("bucket", "shards")
TOKEN = {"Authorization": f"Bearer {os.environ['MQ_TOKEN']}"}

schemathesis.openapi.format(
    "date-time", st.datetimes(FIRST, LAST).map(lambda time: time.replace(tzinfo=UTC).isoformat())
)


@schemathesis.hook
def before_load_schema(context: Any, raw_schema: Any) -> None:
    """Has answers say nothing that the document does not tell of."""
    for schema in raw_schema["components"]["schemas"].values():
        for each in (schema, *schema.get("oneOf", ())):
            if "properties" in each:
                each["additionalProperties"] = False


@schemathesis.hook
def map_case(context: Any, case: Any) -> Any:
    """Takes away what mq does not take together, which schemas cannot say of parameters."""
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return case
    query, headers = case.query or {}, case.headers or {}
    # Schemathesis itself has 0 for a header whose pattern asks for quotes.
    if headers.get("If-Match") == "0":
        headers["If-Match"] = '"0"'
    # A delivery that is returned unhandled is named.
    if isinstance(case.body, dict) and case.body.get("unhandled"):
        case.headers = {**headers, "If-Match": '"1"'}
        headers = case.headers
    # A repeat is answered with the first one's id, also when that message is gone: in a chain it
    # would look as if what was just made were not there.
    if "split" in query or _is_in_chain(case):
        headers.pop("Idempotency-Key", None)
    _of_many(case, query)
    # The schema says no more than how a term begins.
    if "select" in query and not _is_selection(query["select"]):
        query["select"] = SELECT
    if query.keys() & {"after", "select"} and "state" in query:
        query["state"] = _words(query["state"])[:1]
    if case.path == "/{queue}/shovel":
        _shovelled(query)
    if case.path == "/{queue}/schedules/{schedule}" and case.method == "PUT":
        without = _of_one_kind(case, query)
    else:
        without = [left for said, left in ALONE if said in query]
    for name in without:
        query.pop(name, None)
    return case


def _of_many(case: Any, query: Any) -> None:
    """Rows say their own attributes, and a request settles each message in one way."""
    if query.get("split") == "rows":
        for parameter in ATTRIBUTES.values():
            query.pop(parameter.name, None)
    if isinstance(case.body, dict) and isinstance(case.body.get("messages"), list):
        ways = {each["id"]: each for each in case.body["messages"]}
        case.body = {"messages": list(ways.values())}


def _of_one_kind(case: Any, query: Any) -> list[str]:
    """Has a schedule be one of seconds or one of cron; the parameters of the other."""
    if "cron" not in query or not _is_about(case, "cron", "tz"):
        query.setdefault("every", 60)
        return ["cron", "tz"]
    # Some are drawn by the schema, which says no more than how long they are.
    if query["cron"].count(" ") < 4:
        query["cron"] = CRON
    if query.get("tz") not in ZONES:
        query.pop("tz", None)
    return ["every", "delay"]


def _shovelled(query: Any) -> None:
    """Has a shovel's key and priority be ones that terms of a selection are made of, which the
    schemas say no more of than how they look.
    """
    for name, default in (("key", KEY), ("priority", "5..")):
        with contextlib.suppress(KeyError):
            try:
                Criteria.of(**{name: str(query[name])})
            except BadParameter:
                query[name] = default
    # Only some of what the pattern of ids allows is one.
    if ids := [each for each in _each(query.pop("id", None)) if each is not None and _is_id(each)]:
        query["id"] = ids


def _is_in_chain(case: Any) -> bool:
    return case.meta is not None and case.meta.phase.name == TestPhase.STATEFUL


def _is_about(case: Any, *parameters: str) -> bool:
    """Whether a request is there for the sake of one of these, or of none that is known."""
    about = getattr(case.meta.phase.data, "parameter", None)
    return about in parameters or (about is None and len(case.query) % 2 == 0)


@schemathesis.hook
def filter_case(context: Any, case: Any) -> bool:
    """Whether a request that its schemas allow is one that mq takes."""
    if case.meta is None or case.meta.generation.mode != GenerationMode.POSITIVE:
        return True
    query, path, headers = case.query or {}, case.path_parameters or {}, case.headers or {}
    if isinstance(case.body, dict) and not _is_near(case.body.get("due_in_s", 0)):
        return False
    return (
        _is_due(query)
        and all(map(_is_key, (path.get("key"), query.get("key"), headers.get("Idempotency-Key"))))
        and all(map(_is_key, (path.get("tag"), *_each(query.get("tag")))))
        and all(map(_is_id, (path.get("id"), query.get("after"))))
        and all(map(_is_failure, _reasons(case.body)))
    )


def _reasons(body: Any) -> list[Any]:
    if not isinstance(body, dict):
        return []
    rows = body.get("messages")
    each = [body, *rows] if isinstance(rows, list) else [body]
    return [one["reason"] for one in each if isinstance(one, dict) and "reason" in one]


def _each(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _words(value: Any) -> list[Any]:
    return value if isinstance(value, list) else str(value).split(",")


def _is_due(query: Any) -> bool:
    if str(query.get("at", LAST)) < str(FIRST):
        return False
    return _is_near(query.get("delay", 0))


def _is_near(seconds: Any) -> bool:
    return float(seconds) <= DELAY_S_MAX


def _is_key(text: Any) -> bool:
    # Without the quotes that an Idempotency-Key may stand in.
    unquoted = None if text is None else re.sub(r'^"(.*)"$', r"\1", str(text).strip(), flags=re.S)
    try:
        return unquoted is None or Key.parse(unquoted) is not None
    except BadName:
        return False


def _is_failure(reason: Any) -> bool:
    """Its bytes are bounded in all."""
    try:
        return Failure.of(reason) is not None
    except ValueError:
        return False


def _is_selection(text: Any) -> bool:
    try:
        return Selection.parse(str(text)) is not None
    except BadParameter:
        return False


def _is_id(text: Any) -> bool:
    try:
        return text is None or MessageId.parse(str(text)) is not None
    except BadName:
        return False


@schemathesis.hook
def before_call(context: Any, case: Any, kwargs: Any) -> None:
    """Has what a request names be there, and cuts what would take long."""
    query, path, headers = case.query or {}, case.path_parameters or {}, case.headers or {}
    with contextlib.suppress(KeyError, TypeError, ValueError):
        query["wait"] = min(float(query["wait"]), WAIT_S_MAX)
    if "Prefer" in headers:
        headers["Prefer"] = "wait=0"
    queue = path.get("queue")
    # A chain of requests makes by itself what its next ones name, and deletes it.
    if queue not in QUEUES or _is_in_chain(case):
        return
    url = f"{case.operation.base_url.rstrip('/')}/{queue}"
    with requests.Session() as session:
        session.headers.update(TOKEN)
        session.put(url)
        if case.path.endswith("/history"):
            session.patch(f"{url}/settings", json={"history": True})
        if path.get("id") == ID:
            path["id"] = session.post(f"{url}/messages", data=b"{}").json()["id"]
        if path.get("key") == KEY:
            session.post(f"{url}/messages?key={KEY}", data=b"{}")
        if case.path.endswith("/shovel"):
            session.delete(f"{url}/shovel")
            if case.method != "POST":
                session.patch(f"{url}/settings", json={"shovel_interval_s": 3600})
                session.post(f"{url}/shovel")
        if path.get("schedule") == SCHEDULE and case.method != "PUT":
            session.put(f"{url}/schedules/{SCHEDULE}?every=3600", data=b"{}")
        if case.method == "GET" and case.path in ("/{queue}/messages", "/{queue}/peek"):
            session.post(f"{url}/messages", data=b"{}", headers={"x-attribute-colour": "red"})
            session.post(f"{url}/messages", data=b"\xff")


@schemathesis.hook
def after_call(context: Any, case: Any, response: Any) -> None:
    """Has a queue's settings be by default again."""
    if case.method == "PATCH" and case.path.endswith("/settings") and response.status_code == 200:
        changed = dict.fromkeys(response.json().keys() - set(SHAPE))
        requests.patch(
            response.request.url, json=changed, headers={**MERGE_PATCH, **TOKEN}, timeout=10
        )


@schemathesis.check
def lines_conform(ctx: Any, response: Any, case: Any) -> None:
    """Each line of an answer in lines is what the document says."""
    if response.headers.get("content-type") != [ROWS] or "x-message-id" in response.headers:
        return  # No lines, or a message that is some itself.
    document = case.operation.schema.raw_schema
    answer = document["paths"][case.path][case.method.lower()]["responses"]["200"]
    line = answer["content"][ROWS]["x-each-line"]
    validator = jsonschema_rs.Draft202012Validator({**line, "components": document["components"]})
    for each in response.text.splitlines():
        validator.validate(json.loads(each))
