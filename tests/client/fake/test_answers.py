"""The fake answers as the live server does: the same requests, the same answers."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from harness.twins import Twins, live_twins
from hypothesis import given, settings
from hypothesis import strategies as st

JSON = {"Content-Type": "application/json"}
UNKNOWN = "0192f3a2-7c4e-7d2a-9b1e-0123456789ab"
NAMES = ("a", "b", "a_SIDELINE")


@dataclass
class Trial:
    """One sequence of requests, in queues of its own."""

    twins: Twins
    number: int
    ids: list[tuple[str, str]] = field(default_factory=list)
    """Queue and id of what was published, by the fake's ids."""
    gone_s: float = 0.0
    """How far the time was moved: less than after which mq-mover deletes an expired queue."""
    made_again: set[str] = field(default_factory=set)
    """Queues that may have the record of another's shovel, which nobody has swept yet."""

    def queue(self, name: str) -> str:
        return f"/t{self.number}{name}"

    def message(self, at: int) -> tuple[str, str]:
        """One of those that were published, and of which queue; or one that never was."""
        return self.ids[at % len(self.ids)] if self.ids else (self.queue("a"), UNKNOWN)

    def forget(self, name: str) -> None:
        self.ids = [each for each in self.ids if each[0] != self.queue(name)]


Act: TypeAlias = Callable[[Trial], Awaitable[object]]


def acts(act: Any, **more: Any) -> st.SearchStrategy[Act]:
    """One step of a trial, with what is drawn for it."""
    drawn = {
        name: value if isinstance(value, st.SearchStrategy) else st.just(value)
        for name, value in more.items()
    }
    return st.builds(partial, st.just(act), **drawn)


async def publish(
    trial: Trial, name: str, query: dict[str, Any], headers: dict[str, str], body: bytes
) -> None:
    queue = trial.queue(name)
    answer = await trial.twins.ask("POST", f"{queue}/messages", query, headers, body)
    ids = [answer.header("X-Message-Id")] if answer.status == 201 else []
    if answer.status == 200:
        ids = [json.loads(line).get("id") for line in answer.body.splitlines()]
    trial.ids += [(queue, each) for each in ids if each is not None]


async def of_message(
    trial: Trial,
    at: int,
    method: str,
    is_aside: bool,
    tail: str = "",
    headers: Any = None,
    body: bytes = b"",
) -> None:
    queue, message_id = trial.message(at)
    queue = f"{queue}_SIDELINE" if is_aside and not queue.endswith("_SIDELINE") else queue
    await trial.twins.ask(method, f"{queue}/messages/{message_id}{tail}", {}, headers, body)


async def of_queue(
    trial: Trial,
    name: str,
    method: str,
    tail: str,
    query: Any = None,
    headers: Any = None,
    body: bytes = b"",
) -> None:
    await trial.twins.ask(method, trial.queue(name) + tail, query, headers, body)


async def shovel(trial: Trial, name: str, query: dict[str, Any]) -> None:
    answer = await trial.twins.ask("POST", f"{trial.queue(name)}/shovel", query)
    if answer.status == 202:
        trial.made_again.discard(name)


async def look_at_shovel(trial: Trial, name: str, method: str) -> None:
    if name not in trial.made_again:
        await trial.twins.ask(method, f"{trial.queue(name)}/shovel")


async def ack(trial: Trial, ats: list[int]) -> None:
    found = [trial.message(at) for at in ats]
    ids = [*(message_id for _, message_id in found), UNKNOWN, "none"]
    body = json.dumps({"ids": ids}).encode()
    await trial.twins.ask("POST", f"{found[0][0]}/acks", {}, JSON, body)


async def purge(trial: Trial, name: str) -> None:
    answer = await trial.twins.ask("DELETE", f"{trial.queue(name)}/messages")
    if answer.status == 202:
        # What lies there still is 404 until it is in remove/, and is shown then.
        trial.forget(name)
        await trial.twins.advance(0.1)  # Ids went past the mark: the time is to be there too.


async def drop(trial: Trial, name: str, is_made_again: bool) -> None:
    await trial.twins.ask("DELETE", trial.queue(name))
    trial.forget(name)
    trial.made_again.add(name)
    if is_made_again:
        await trial.twins.ask("PUT", trial.queue(name))


async def advance(trial: Trial, seconds: float) -> None:
    """On by so much, or to where the first is due: what comes back may say when it did."""
    if trial.gone_s > 50:
        return
    trial.gone_s += seconds
    fake = trial.twins.fake
    now = fake.clock.now()
    seen = [each for name in NAMES for each in fake.queue(trial.queue(name)[1:]).messages]
    dues = [each.due for each in seen if each.state == "delayed" and each.due > now]
    await trial.twins.advance(min([seconds, *((due - now).total_seconds() for due in dues)]))


def some(**more: Any) -> st.SearchStrategy[dict[str, Any]]:
    """A query with some of these parameters, each with one of its values."""
    drawn = {name: st.sampled_from(values) for name, values in more.items()}
    return st.fixed_dictionaries({}, optional=drawn)


name = st.sampled_from(("a", "a", "a", "a", "a_SIDELINE", "b"))
at = st.integers(0, 9)
headers = st.sampled_from(
    (
        {}, {"Content-Type": "text/plain"},
        {"Content-Type": "text/plain; charset=utf-8", "ce-type": "made"},
        {"ce-type": "made", "X-Attribute-Shop": "nörd", "x-other": "1"},
        {"Idempotency-Key": "i"}, {"Idempotency-Key": '"j"', "Content-Type": "application/json"},
    )
)  # fmt: skip
published = some(priority=(0, 1, 9), key=("k", "a b"), visibility=(2, 7), delay=(0, 3, 0.001))
fetched = some(count=(1, 2, 5), visibility=(2, 5, 0.5))
selected = some(
    select=("priority:1..", "key:k", "content-type:text/*", "header:ce-type=ma*"), count=(3,)
)
refused = st.sampled_from(
    (
        {"priority": 10}, {"key": ""}, {"visibility": 0}, {"delay": -1}, {"split": "words"},
        {"count": 0}, {"select": "bad"}, {"wait": 61}, {"at": "2020-01-01T00:00:00Z"}, {"x": 1},
        {"key": "k", "split": "lines"}, {"delay": 1, "at": "2200-01-01T00:00:00Z"},
    )
)  # fmt: skip
refused_headers = st.sampled_from(
    ({}, {"Idempotency-Key": ""}, {"x-attribute-long": "x" * 9000}, {"x-attribute-many": "\t"})
)
matches = st.sampled_from(({}, {}, {}, {"If-Match": '"1"'}, {"If-Match": '"2", "0"'}))
any_match = st.sampled_from(({}, {}, {}, {"If-Match": '"1"'}, {"If-Match": "x"}, {"If-Match": "*"}))
json_matches = any_match.map(lambda said: {**said, **JSON})
dues = st.sampled_from(
    (
        *([b'{"due_in_s": 0}', b'{"due_in_s": 4}', b'{"due_in_s": 0.25}'] * 3),
        b'{"due_in_s": -1}', b'{"due_in_s": 1, "more": 2}', b"[]", b"{",
    )
)  # fmt: skip
ranges = st.sampled_from(
    (
        {}, {"Range": "bytes=1-2"}, {"Range": "bytes=-2"}, {"Range": "bytes=90-"},
        {"Range": "bytes=0-0", "If-Range": '"0"'}, {"Range": "lines=1-2"},
    )
)  # fmt: skip
changes = st.sampled_from(
    (
        {"visibility_s": 3}, {"max_receives": 2}, {"max_receives": 1}, {"priority_default": 4},
        {"history": True}, {"body_bytes_max": 4}, {"body_bytes_max": None}, {"idempotency_s": 0},
        {"expires_at": None}, {"unknown": 1}, {"expires_at": "2020-01-01T00:00:00Z"},
        {"visibility_s": "long"}, {"bucket": 8}, {"bucket": 9}, {"priority_default": 1.0},
        {"message_ttl_s": 100000}, {"shovel_max_receives": 1},
    )
)  # fmt: skip
schedules = st.sampled_from(
    (
        {"every": 3600}, {"every": 3600, "priority": 3}, {"every": 0}, {},
        {"cron": "0 0 1 1 *", "tz": "Europe/Berlin"}, {"cron": "0 0 30 2 *"},
        {"every": 3600, "delay": 7200, "count": 2}, {"cron": "* * * * *", "every": 60},
    )
)  # fmt: skip
shovelled = some(
    limit=(1, 2), priority=("1..", "0"), key=("k", "*"), max_receives=(0, 1), older_than=(0, 2),
    dry_run=("true", "false"),
)  # fmt: skip
bodies = st.sampled_from((b"", b"two pizzas", b"\xff\x00", b'{"n": 1}'))
lines = st.sampled_from((b"1\n2\r\n\n3", b"", b"\n\n", b"12345\n6"))
message = {"at": at, "is_aside": st.sampled_from((False, False, False, True))}

STEPS: list[tuple[int, st.SearchStrategy[Act]]] = [
    (1, acts(of_queue, name=name, method="PUT", tail="", query=some(bucket=(7, 8), shards=(0, 1)))),
    (9, acts(publish, name=name, query=published, headers=headers, body=bodies)),
    (1, acts(publish, name=name, query=refused, headers=refused_headers, body=bodies)),
    (
        1,
        acts(
            publish,
            name=name,
            query=some(delay=(0, 2), priority=(0, 3)).map(lambda said: {**said, "split": "lines"}),
            headers=headers,
            body=lines,
        ),
    ),
    (6, acts(of_queue, name=name, method="GET", tail="/messages", query=fetched)),
    (2, acts(of_queue, name=name, method="GET", tail="/messages", query=selected)),
    (1, acts(of_queue, name=name, method="GET", tail="/messages", query=refused)),
    (4, acts(of_message, **message, method="PATCH", headers=json_matches, body=dues)),
    (2, acts(of_message, **message, method="DELETE", headers=matches)),
    (3, acts(of_message, **message, method="POST", tail="/sideline", headers=any_match)),
    (
        2,
        acts(
            of_message,
            **message,
            method=st.sampled_from(("GET", "HEAD")),
            tail=st.sampled_from(("", "/history")),
            headers=ranges,
        ),
    ),
    (1, acts(ack, ats=st.lists(at, min_size=1, max_size=3))),
    (
        1,
        acts(
            of_queue,
            name=name,
            method=st.sampled_from(("GET", "DELETE", "HEAD")),
            tail=st.sampled_from(("/keys/k", "/keys/a%20b", "/keys/%ff")),
            headers=matches,
        ),
    ),
    (
        1,
        acts(
            of_queue,
            name=name,
            method="GET",
            tail="/peek",
            query=some(state=("delayed,ready", "new"), count=(1, 3)),
        ),
    ),
    (
        2,
        acts(
            of_queue,
            name=name,
            method="PATCH",
            tail="/settings",
            headers=st.sampled_from((JSON, JSON, JSON, {**JSON, "If-Match": '"1"'}, {})),
            body=changes.map(lambda change: json.dumps(change).encode()),
        ),
    ),
    (2, acts(shovel, name=name, query=shovelled)),
    (1, acts(look_at_shovel, name=name, method=st.sampled_from(("GET", "DELETE")))),
    (1, acts(of_queue, name=name, method="PUT", tail="/schedules/s", query=schedules, body=b"s")),
    (
        1,
        acts(
            of_queue,
            name=name,
            method=st.sampled_from(("GET", "DELETE")),
            tail=st.sampled_from(("/schedules/s", "/schedules", "/schedules/s!")),
        ),
    ),
    (1, acts(purge, name=name)),
    (1, acts(drop, name=name, is_made_again=st.sampled_from((True, True, False)))),
    (5, acts(advance, seconds=st.sampled_from((1.0, 2.5)))),
]
STEP = st.one_of(*(step for weight, step in STEPS for _ in range(weight)))


async def go_through(trial: Trial, steps: list[Act]) -> None:
    for each in ("a", "b"):
        await of_queue(trial, each, "PUT", "")
    for query in ({"key": "k"}, {"priority": 3}, {"delay": 1}, {}, {}):
        await publish(trial, "a", query, {"ce-type": "made"}, b"one of those that are there")
    await of_queue(trial, "a", "GET", "/messages")
    await of_message(trial, 4, "POST", False, "/sideline")
    for step in steps:
        await step(trial)
    for each in NAMES:
        await of_queue(trial, each, "GET", "/peek", {"state": "ready,delayed", "count": 1000})
        await of_queue(trial, each, "GET", "/settings")


def test_any_sequence_of_requests(root: Any) -> None:
    numbers = iter(range(1_000_000))
    with asyncio.Runner() as runner, live_twins(root, runner) as twins:

        @settings(max_examples=10)
        @given(st.lists(STEP, min_size=20, max_size=30))
        def is_answered_the_same(steps: list[Act]) -> None:
            runner.run(go_through(Trial(twins, next(numbers)), steps))

        is_answered_the_same()
