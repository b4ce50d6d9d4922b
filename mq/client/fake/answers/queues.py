"""`/{queue}`, its settings, `/-/queues`, and what tells how mq is. Pure."""

from collections.abc import Mapping
from typing import Final

from mq.client.fake import queues
from mq.client.fake.asked import NO_STORE, Asked, Reply, json_reply
from mq.client.fake.queue import Queue
from mq.client.fake.redelivery import look_at_life
from mq.client.fake.shovels import watch_schedule
from mq.client.fake.world import World
from mq.model.clock import rfc3339
from mq.model.limits import MEMORY_BYTES_DEFAULT
from mq.model.names import QueueName
from mq.model.settings import tag_of
from mq.model.upkeep_limits import QUEUES_LISTED_DEFAULT
from mq.protocol.bodies import object_of, patch_of
from mq.protocol.consume.errors import NoWebSocket
from mq.protocol.etags import parse_tags
from mq.protocol.members import QUEUE, shown
from mq.protocol.queues import AFTER, COUNT, DIGITS, SHARDS, listed
from mq.protocol.routes import ABOUT

_FREE: Final = 1 << 40
_METRICS: Final = "text/plain; version=0.0.4; charset=utf-8"
_HOLDERS: Final = ("publishing", "direct", "pending", "head")
_HOLDER: Final = {"bytes": 0, "bodies": 0, "in_hand_bytes": 0, "evicted": 0}


def create(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """PUT: 201 made, 200 was there."""
    name = QueueName.parse(path["queue"])
    made = queues.create(world, name, DIGITS.of(asked.query), SHARDS.of(asked.query))
    if made:
        _watch(world, world.queue(name))
    return json_reply({"name": name.text}, 201 if made else 200, {"Location": f"/{name.text}"})


def describe(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: counts, totals, settings."""
    return json_reply(queues.describe(world, world.queue(QueueName.parse(path["queue"]))))


def delete(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """DELETE: the queue and its messages."""
    queue = world.queue(QueueName.parse(path["queue"]))
    world.forget(queue)
    return json_reply({"name": queue.name.text})


def purge(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """DELETE of its messages: 202."""
    before_ms = queues.purge(world, world.queue(QueueName.parse(path["queue"])))
    return json_reply({"purged_before": rfc3339(before_ms)}, 202)


def read_settings(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: the effective values."""
    return _configured(world.queue(QueueName.parse(path["queue"])))


def change_settings(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """PATCH: 200 with the effective values."""
    queue = world.queue(QueueName.parse(path["queue"]))
    if_match = parse_tags(asked.headers.getall("If-Match", []))
    patch = patch_of(object_of(asked.json_text()))
    before = queue.settings
    queues.change(world, queue, patch, if_match)
    reply = _configured(queue)
    if queue.settings is not before:
        _watch(world, queue)
    return reply


def _watch(world: World, queue: Queue) -> None:
    """What time does by a queue's settings is to be looked at anew."""
    watch_schedule(world, queue)
    look_at_life(world, queue)


def _configured(queue: Queue) -> Reply:
    effective = queue.effective()
    return json_reply(effective, headers={"ETag": f'"{tag_of(effective)}"', **NO_STORE})


def read_all(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: a page of the queues, by name."""
    count = COUNT.of(asked.query) or QUEUES_LISTED_DEFAULT
    after = AFTER.of(asked.query)
    names = sorted(each.name for each in world.queues.values())
    found = [each for each in names if after is None or each > after]
    return json_reply(listed(found[: count + 1], count), headers=NO_STORE)


def members(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: nobody else does anything here."""
    return json_reply(shown((), QUEUE.of(asked.query), world.now_ms()), headers=NO_STORE)


def refresh(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """POST: what is new since the last one."""
    return json_reply(queues.refreshed(world), headers=NO_STORE)


def read_root(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD of `/`."""
    return json_reply(ABOUT)


def livez(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: it is there."""
    return json_reply({"alive": True})


def readyz(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: it promises nothing beyond the process."""
    return json_reply(
        {
            "ready": True,
            "durability": "none",
            "file_system": "none",
            "commit": "none",
            "free_bytes": _FREE,
            "free_inodes": _FREE,
            "below_reserve": False,
            "clock_set_s": 0.0,
        }
    )


def memory(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: the form of it; nothing is counted here."""
    content: dict[str, object] = {
        "process": 0,
        "budget_bytes": MEMORY_BYTES_DEFAULT,
        "held_bytes": 0,
        "holders": dict.fromkeys(_HOLDERS, _HOLDER),
        **dict.fromkeys(("ids", "hits", "misses", "refused", "queues_held"), 0),
        "queues": [],
    }
    return json_reply(content, headers=NO_STORE)


def metrics(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: that it is there; nothing is counted here."""
    return Reply(
        200, {**NO_STORE, "Content-Type": _METRICS}, b"# TYPE mq_ready gauge\nmq_ready 1.0\n"
    )


def consume(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET that begins no WebSocket: 426."""
    raise NoWebSocket
