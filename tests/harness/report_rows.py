"""Rows of a history's tables as a real system has them: bursts, outages, what nobody knows."""

import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from mq.spark.jobs.history_folder import TABLES

BEGIN = datetime(2026, 3, 14, 6, tzinfo=UTC)
Tables = dict[str, list[dict[str, Any]]]

_FIRST_FETCH = "publish-to-first-fetch"
_REMOVAL = "publish-to-removal"


@dataclass(frozen=True)
class Life:
    """How a queue lives: messages a second, what its consumers can do, and when they are away."""

    name: str
    per_s: float = 5.0
    capacity: float = 1.6
    """Of what is published on the average."""
    outage: tuple[int, int] | None = None
    """Steps in which nothing is fetched."""
    priorities: tuple[int, ...] = (0,)
    steps: int = 144
    step_s: int = 600
    body: float = 900.0
    seed: int = 1


def empty() -> Tables:
    """Tables without a row."""
    return {table: [] for table in TABLES}


def together(*parts: Tables) -> Tables:
    """All the rows of several."""
    return {table: [row for part in parts for row in part[table]] for table in TABLES}


def row(table: str, **values: Any) -> dict[str, Any]:
    """A row of a table: what is not given is null."""
    columns = [column.strip().split()[0] for column in TABLES[table].split(", ")]
    assert set(values) <= set(columns), set(values) - set(columns)
    return {column: values.get(column) for column in columns}


def lived(life: Life) -> Tables:
    """The tables of one queue whose sources know all."""
    made = empty()
    chance = random.Random(f"{life.name!r} {life.seed}")
    shares = [2.0**-index for index in range(len(life.priorities))]
    parts = []
    for priority, share in zip(life.priorities, shares, strict=True):
        parts.append((priority, _flow(life, share / sum(shares), chance)))
    if len(parts) > 1:
        for priority, steps in parts:
            _add(made, life, priority, steps, chance)
    everything = [_summed([steps[i] for _, steps in parts]) for i in range(life.steps)]
    _add(made, life, None, everything, chance)
    published = sum(step.published for step in everything)
    removed = sum(step.removed for step in everything)
    last = everything[-1]
    waiting = round(last.waiting)
    made["queues"].append(
        row(
            "queues",
            queue=life.name,
            sources=["archive", "inodes", "history"],
            first=BEGIN,
            last=BEGIN + timedelta(seconds=life.steps * life.step_s),
            published=published,
            removed=removed,
            ready=waiting - waiting // 10,
            delayed=0,
            leased=waiting // 10,
            sidelined=sum(step.sidelined for step in everything),
            bytes=round(published * life.body),
            oldest_age_s=last.age,
        )
    )
    return made


@dataclass
class _Step:
    published: int
    removed: int
    redelivered: int
    sidelined: int
    waiting: float
    age: float


def _flow(life: Life, share: float, chance: random.Random) -> list[_Step]:
    base = life.per_s * life.step_s * share
    level, waiting, steps = 1.0, 0.0, []
    for index in range(life.steps):
        day = 1 + 0.55 * math.sin(2 * math.pi * (index * life.step_s / 86400 - 0.15))
        level += 0.25 * (1 - level) + chance.gauss(0, 0.09)
        burst = 3.2 if chance.random() < 0.02 else 1.0
        published = max(0, round(base * day * max(level, 0.05) * burst))
        away = life.outage is not None and life.outage[0] <= index < life.outage[1]
        able = 0 if away else round(base * life.capacity * chance.uniform(0.85, 1.1))
        removed = min(able, round(waiting) + round(published * 0.97))
        waiting = max(waiting + published - removed, 0)
        late = max(waiting - 0.035 * published, 0.0)
        age = late / max(published / life.step_s, 0.01) + 0.4 * chance.random() * (waiting >= 1)
        troubled = round(removed * (0.004 + (0.05 if burst > 1 else 0)) * chance.random())
        steps.append(_Step(published, removed, troubled, troubled // 9, waiting, age))
    return steps


def _summed(steps: list[_Step]) -> _Step:
    return _Step(
        sum(s.published for s in steps),
        sum(s.removed for s in steps),
        sum(s.redelivered for s in steps),
        sum(s.sidelined for s in steps),
        sum(s.waiting for s in steps),
        max(s.age for s in steps),
    )


def _add(
    made: Tables, life: Life, priority: int | None, steps: list[_Step], chance: random.Random
) -> None:
    of = {"queue": life.name, "priority": priority}
    for index, step in enumerate(steps):
        start = BEGIN + timedelta(seconds=index * life.step_s)
        in_step = {**of, "start": start, "step_s": life.step_s}
        made["rates"].append(
            row(
                "rates",
                **in_step,
                published=step.published,
                published_bytes=round(step.published * life.body),
                fetched=step.removed + step.redelivered,
                redelivered=step.redelivered,
                removed=step.removed,
                sidelined=step.sidelined,
            )
        )
        made["backlog"].append(
            row(
                "backlog",
                **of,
                at=start + timedelta(seconds=life.step_s),
                messages=round(step.waiting),
                bytes=round(step.waiting * life.body),
                oldest_age_s=step.age if step.waiting >= 0.5 else None,
            )
        )
        for what, base in ((_FIRST_FETCH, 0.004), (_REMOVAL, 0.06)):
            if not step.removed:
                continue
            median = base * chance.uniform(0.8, 1.3) + step.age * 0.6
            made["latencies"].append(
                row("latencies", **in_step, what=what, **_quantiles(median, step.removed, chance))
            )
    removed = sum(step.removed for step in steps)
    late = sum(step.age * step.removed for step in steps) / max(removed, 1)
    for what, base in ((_FIRST_FETCH, 0.005), (_REMOVAL, 0.07)):
        made["latencies"].append(
            row("latencies", **of, what=what, **_quantiles(base + late * 0.05, removed, chance))
        )
    left, often = removed, 1
    while left > 0:
        once = max(left - round(left * (0.012 if often == 1 else 0.4)), 1)
        made["receives"].append(row("receives", **of, receives=often, messages=once))
        left, often = left - once, often + 1
    _sizes(made, life, of, sum(step.published for step in steps))


def _quantiles(median: float, messages: int, chance: random.Random) -> dict[str, Any]:
    if not messages:
        return {"messages": 0}
    tail = chance.uniform(0.9, 1.2)
    return {
        "messages": messages,
        "mean_s": median * 1.4,
        "p50_s": median,
        "p90_s": median * 2.2 * tail,
        "p99_s": median * 6 * tail,
        "p999_s": median * 15 * tail**2,
        "max_s": median * 40 * tail**2,
    }


def _sizes(made: Tables, life: Life, of: dict[str, Any], published: int) -> None:
    middle = math.log2(life.body)
    for power in range(22):
        portion = math.exp(-((power - middle) ** 2) / 3.5) * 0.3
        messages = round(published * portion)
        if messages:
            low = 1 << power
            made["sizes"].append(
                row(
                    "sizes",
                    **of,
                    bytes_from=low,
                    bytes_to=2 * low,
                    messages=messages,
                    bytes=messages * low * 3 // 2,
                )
            )


def forgotten(life: Life) -> Tables:
    """The tables of a queue of which there are the inodes alone, without what they cannot tell."""
    made = lived(life)
    half = BEGIN + timedelta(seconds=life.steps * life.step_s // 2)
    for found in made["rates"]:
        found.update(fetched=None, redelivered=None, sidelined=None, removed=None)
        if found["start"] < half:
            found.update(published=None, published_bytes=None)
    for found in made["backlog"]:
        if found["at"] <= half:
            found.update(messages=None, bytes=None, oldest_age_s=None)
    made["latencies"] = []
    made["receives"] = []
    for found in made["queues"]:
        found.update(sources=["inodes"], published=None, removed=None, sidelined=None)
    return made


def unheard(name: str) -> Tables:
    """A queue with nothing in it, and nothing known of what was."""
    made = empty()
    made["queues"].append(row("queues", queue=name, sources=[], ready=0, delayed=0, leased=0))
    return made


def sample(step_s: int = 600) -> Tables:
    """A system of several queues on a bad day, in steps of so many seconds."""

    def life(name: str, per_s: float, *away: int, **more: Any) -> Life:
        outage = (away[0] * 3600 // step_s, away[1] * 3600 // step_s) if away else None
        steps = 86400 // step_s
        return Life(name, per_s, outage=outage, steps=steps, step_s=step_s, **more)

    return together(
        lived(life("orders", 42, 10, 13, priorities=(9, 5, 1, 0))),
        lived(life("payments", 11, capacity=2.5, body=400)),
        lived(life("thumbnails", 3, 3, 7, capacity=1.04, body=180_000, seed=4)),
        lived(life("e-mail", 0.4, capacity=1.3, body=3000)),
        forgotten(life("imports", 1.2)),
        lived(life("audit-log", 0.002, capacity=0)),
        unheard("not-used-yet"),
    )
