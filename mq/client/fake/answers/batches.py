"""Many messages in one request: `?split=lines`, fetches, acks and peeks. Pure."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from mq.client.fake import publishing, settling
from mq.client.fake.answers import messages
from mq.client.fake.asked import NO_STORE, Asked, Outcome, Reply, json_reply, problem_item
from mq.client.fake.fetching import Poll, Terms, fetch
from mq.client.fake.message import Message
from mq.client.fake.world import World
from mq.model.errors import BadName, BatchTooLarge, MqError
from mq.model.lifecycle import State
from mq.model.limits import BATCH_BYTES_MAX, PEEK_BODY_BYTES, SPLIT_LINES_MAX
from mq.model.looking import Page, cut
from mq.model.message import Delivery
from mq.model.names import MessageId, QueueName
from mq.protocol.bodies import ids_of, object_of
from mq.protocol.carried import OWN_ORIGIN
from mq.protocol.envelopes import envelope_of_each
from mq.protocol.fetching import COUNT, terms_of
from mq.protocol.lines import SPLIT, lines_of
from mq.protocol.peeking import page_of, peeked
from mq.protocol.rows import MEDIA_TYPE, delivered, row

_ROWS: Final = {**NO_STORE, "Content-Type": MEDIA_TYPE}
_FETCHED: Final = {**_ROWS, **OWN_ORIGIN}
_PEEKED: Final = {**_FETCHED, "X-Content-Type-Options": "nosniff"}


def publish(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """POST: the body is one message; with `split`, each of its lines is one."""
    if SPLIT.of(asked.query) is None:
        return messages.publish(world, asked, path)
    queue = world.queue(QueueName.parse(path["queue"]))
    envelope = envelope_of_each(asked.query, asked.headers, world.now_ms())
    lines = list(lines_of(asked.body))
    if len(asked.body) > BATCH_BYTES_MAX or len(lines) > SPLIT_LINES_MAX:
        raise BatchTooLarge(SPLIT_LINES_MAX, BATCH_BYTES_MAX)
    ends = publishing.publish_each(world, queue, lines, envelope)
    rows = (
        row({"id": end.text} if isinstance(end, MessageId) else {"problem": problem_item(end)})
        for end in ends
    )
    return Reply(200, _ROWS, b"".join(rows))


def fetch_some(world: World, asked: Asked, path: Mapping[str, str]) -> Outcome:
    """GET: the next message; with `count`, the next ones, a line of JSON each."""
    count = COUNT.of(asked.query)
    terms = Terms(*terms_of(asked.query, asked.headers), count or 1)
    queue = world.queue(QueueName.parse(path["queue"]))
    answer = partial(_fetched, is_batch=count is not None)
    found = fetch(world, queue, terms)
    if found or terms.wait_s <= 0:
        return answer(found)
    return Poll(world, queue, terms, answer)


def _fetched(found: Sequence[Delivery], *, is_batch: bool) -> Reply:
    if not is_batch or not found:
        return messages.fetched(found[0] if found else None)
    return Reply(200, _FETCHED, b"".join(row(delivered(each), each.body) for each in found))


def acknowledge(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """POST: 200 with a result for each id."""
    queue = world.queue(QueueName.parse(path["queue"]))
    texts = ids_of(object_of(asked.json_text()))
    ends: dict[str, dict[str, object]] = {}
    for text in texts:
        if text in ends:
            continue
        try:
            settling.remove(world, queue, MessageId.parse(text))
            ends[text] = {"id": text, "status": messages.DELETED.status}
        except (BadName, MqError) as error:
            problem = problem_item(error)
            ends[text] = {"id": text, "status": problem["status"], "problem": problem}
    return json_reply({"results": [ends[text] for text in texts]})


def peek(world: World, asked: Asked, path: Mapping[str, str]) -> Reply:
    """GET: a line for each message of the page."""
    name = QueueName.parse(path["queue"])
    page = page_of(asked.query)
    queue = world.queue(name)
    found: list[Message] = []
    for state in page.states:
        found += _behind(queue.within(state), page, state)[: page.count - len(found)]
    return Reply(200, _PEEKED, b"".join(_peeked(each) for each in found))


def _behind(found: list[Message], page: Page, state: State) -> list[Message]:
    after = page.after
    if after is None:
        return found
    if state is State.READY:
        place = (-after.priority, after.uuid)
        return [each for each in found if each.place > place]
    return [each for each in found if each.id.text > after.text]


def _peeked(message: Message) -> bytes:
    size, shown = len(message.body), message.body[:PEEK_BODY_BYTES]
    facts = (message.id, message.stamp, message.headers, message.state, size)
    return row(peeked(message.queue, *facts), cut(shown) if len(shown) < size else shown)
