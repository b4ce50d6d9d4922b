"""`/{queue}/messages`, `/{queue}/messages/{id}` and `/{queue}/keys/{key}`. Pure."""

from collections.abc import Mapping
from typing import Final

from mq.client.fake import publishing, settling
from mq.client.fake.asked import JSON, NO_STORE, Asked, Reply, json_reply
from mq.client.fake.message import Message
from mq.client.fake.world import World
from mq.model.clock import rfc3339
from mq.model.errors import KeyNotFound, MessageNotFound
from mq.model.looking import Part
from mq.model.message import Delivery
from mq.model.names import Key, MessageId, QueueName
from mq.protocol import parameters
from mq.protocol.bodies import due_in_s_of, object_of
from mq.protocol.carried import fact_headers, is_content_type
from mq.protocol.envelopes import envelope_of
from mq.protocol.etags import etag, parse_if_match
from mq.protocol.ranges import wanted
from mq.protocol.sidelines import reason_of, sidelined

DELETED: Final = Reply(202)
_HEAD: Final = "HEAD"


def publish(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """POST: 201."""
    name = QueueName.parse(path["queue"])
    queue = world.queue(name)
    envelope = envelope_of(asked.query, asked.headers, world.now_ms())
    body = asked.body_of(queue.settings.body_bytes_max)
    text = publishing.publish(world, queue, body, envelope).text
    headers = {
        "X-Message-Id": text,
        "Location": f"/{name.text}/messages/{text}",
        "Content-Type": JSON,
    }
    return Reply(201, headers, f'{{"id": "{text}"}}\n'.encode("ascii"))


def fetched(delivery: Delivery | None) -> Reply:
    """The answer to a fetch."""
    if delivery is None or delivery.body is None:
        return Reply(204, NO_STORE)
    headers = fact_headers(delivery.queue, delivery.id, delivery.stamp)
    return Reply(200, _with_kept(headers, delivery.headers), delivery.body)


def reschedule(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """PATCH: 200 with the message's due time."""
    name, message_id = _named(path)
    if_match = asked.headers.getall("If-Match", [])
    if_receives = parse_if_match(if_match)
    due_in_s, given = due_in_s_of(object_of(asked.json_text()), if_match)
    queue = world.queue(name)
    stamp = settling.reschedule(world, queue, message_id, due_in_s, if_receives, given)
    return json_reply(
        {"id": message_id.text, "due": rfc3339(stamp.due_ms), "receives": stamp.receives},
        headers={"ETag": etag(stamp.receives)},
    )


def delete(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """DELETE: 202, also when it was removed before."""
    name, message_id = _named(path)
    if_receives = parse_if_match(asked.headers.getall("If-Match", []))
    settling.remove(world, world.queue(name), message_id, if_receives)
    return DELETED


def sideline(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """POST: 200 with where the message is."""
    name, message_id = _named(path)
    reason = reason_of(asked.query)
    if_receives = parse_if_match(asked.headers.getall("If-Match", []))
    stamp = settling.sideline(world, name, message_id, reason, if_receives)
    into = name.sideline()
    headers = {
        "ETag": etag(stamp.receives),
        "Location": f"/{into.text}/messages/{message_id.text}",
    }
    return json_reply(sidelined(message_id, into, stamp), headers=headers)


def read(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: the message as it is, or a range of it."""
    name, message_id = _named(path)
    message = world.queue(name).messages.get(message_id.text)
    if message is None:
        raise MessageNotFound(message_id.text)
    return _shown(asked, message)


def read_key(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: the message that has the key."""
    name, key = _keyed(path)
    message = world.queue(name).keys.get(key)
    if message is None:
        raise KeyNotFound(key.text)
    return _shown(asked, message)


def delete_key(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """DELETE: 202."""
    name, key = _keyed(path)
    if_receives = parse_if_match(asked.headers.getall("If-Match", []))
    settling.remove_by_key(world, world.queue(name), key, if_receives)
    return DELETED


def history(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET or HEAD: what became of a message, as far as it was recorded."""
    name, message_id = _named(path)
    queue = world.queue(name)
    past = queue.pasts.of(message_id.text)
    message = queue.messages.get(message_id.text)
    if not past.events and (message is None or message.was_purged):
        raise MessageNotFound(message_id.text)
    content: dict[str, object] = {
        "id": message_id.text,
        "recording": queue.settings.history,
        "left_out": past.left_out,
        "events": past.events,
    }
    return json_reply(content, headers=NO_STORE)


def _shown(asked: Asked, message: Message) -> Reply:
    stamp, size = message.stamp, len(message.body)
    status, part = 200, Part(0, size)
    more = {"X-Message-State": message.state.value, "Accept-Ranges": "bytes"}
    if asked.method == _HEAD:
        more["Content-Length"] = str(size)
    else:
        ranges = asked.headers.getall("Range", [])
        if_range = parameters.first(asked.headers, "If-Range")
        if (range_ := wanted(ranges, if_range, etag(stamp.receives))) is not None:
            part = range_.of(size)
            if part.size:
                status = 206
                last = part.first + part.size - 1
                more["Content-Range"] = f"bytes {part.first}-{last}/{size}"
    headers = fact_headers(message.queue, message.id, stamp, more)
    body = message.body[part.first : part.first + part.size]
    return Reply(status, _with_kept(headers, message.headers), body)


def _with_kept(
    headers: dict[str, str], kept: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """A Content-Type that was kept is the one."""
    if any(is_content_type(name) for name, _ in kept):
        headers.pop("Content-Type", None)
    return (*headers.items(), *kept)


def _named(path: Mapping[str, str]) -> tuple[QueueName, MessageId]:
    return QueueName.parse(path["queue"]), MessageId.parse(path["id"])


def _keyed(path: Mapping[str, str]) -> tuple[QueueName, Key]:
    return QueueName.parse(path["queue"]), parameters.parsed_key(path["key"], "key")
