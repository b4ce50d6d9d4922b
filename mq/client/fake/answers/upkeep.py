"""`/{queue}/schedules` and `/{queue}/shovel`. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from mq.client.fake import schedules, shovels
from mq.client.fake.asked import NO_STORE, Asked, Reply, json_reply
from mq.client.fake.world import World
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.names import QueueName, ScheduleName
from mq.protocol.schedules import schedule_of, summary, whole
from mq.protocol.shovels import progress, wanted_of


def put_schedule(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """PUT: 201 made, 200 was there."""
    name, schedule_name = _named(path)
    queue = world.queue(name)
    said = schedule_of(asked.query, asked.headers)
    body = asked.body_of(min(BODY_HELD_BYTES_MAX, queue.settings.body_bytes_max))
    armed, made = schedules.put(world, queue, schedule_name, replace(said, body=body))
    location = {"Location": f"/{name.text}/schedules/{schedule_name.text}"}
    status = 201 if made else 200
    return json_reply(whole(schedule_name, armed), status, {**location, **NO_STORE})


def read_schedule(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: what it says, and what is next."""
    name, schedule_name = _named(path)
    armed = schedules.read(world.queue(name), schedule_name)
    return json_reply(whole(schedule_name, armed), headers=NO_STORE)


def delete_schedule(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """DELETE: 200."""
    name, schedule_name = _named(path)
    schedules.delete(world.queue(name), schedule_name)
    return json_reply({"name": schedule_name.text})


def list_schedules(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET: all of the queue's, by name."""
    queue = world.queue(QueueName.parse(path["queue"]))
    rows = [
        summary(ScheduleName(text), armed, len(armed.schedule.body))
        for text, armed in sorted(queue.schedules.items())
    ]
    return json_reply({"schedules": rows}, headers=NO_STORE)


def begin_shovel(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """POST: 202 with the run's id."""
    name = QueueName.parse(path["queue"])
    run_id = shovels.begin(world, name, wanted_of(asked.query))
    return json_reply({"id": run_id}, 202, {"Location": f"/{name.text}/shovel"})


def read_shovel(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: how it stands."""
    name = QueueName.parse(path["queue"])
    return json_reply(progress(name, shovels.read(world, name)), headers=NO_STORE)


def stop_shovel(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """DELETE: 200 with how it stands then."""
    name = QueueName.parse(path["queue"])
    return json_reply(progress(name, shovels.stop(world, name)), headers=NO_STORE)


def _named(path: Mapping[str, str]) -> tuple[QueueName, ScheduleName]:
    return QueueName.parse(path["queue"]), ScheduleName.parse(path["schedule"])
