"""Send, receive, delete messages, and change their visibility: one at a time and in batches."""

import asyncio
import base64
import contextlib
import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from mq.access.callers import Right
from mq.broker import fetching
from mq.broker.consumers import Fetch, Terms
from mq.broker.queue import Queue
from mq.broker.settling import IfReceives, Remove, Reschedule, settle
from mq.http.bodies import download
from mq.http.messages import consumer_terms
from mq.model.errors import DeliveredAgain, MessageNotFound, MqError, QueueNotFound
from mq.model.headers import GROUPED_BY
from mq.model.lifecycle import State
from mq.model.limits import UUID_CHARS
from mq.model.message import Delivery, Envelope, GivenBack, Posted
from mq.model.names import Group, Key, MessageId
from mq.protocol.fetching import Wanted
from mq.sqs import message_attributes as typed
from mq.sqs.attempts import Attempt
from mq.sqs.errors import SqsError, invalid, missing
from mq.sqs.front import Asked, Opened, Result, failure_of, sequence_of
from mq.sqs.message_attributes import MESSAGE_BYTES_MAX
from mq.sqs.names import Handle, bad_handle, check_word, handle_of
from mq.sqs.queue_attributes import DELAY_S_MAX, VISIBILITY_S_MAX, WAIT_S_MAX, Kept
from mq.sqs.stored import DOCUMENT_BYTES_MAX, attributes_in, document_in, is_whole, stored
from mq.store.core.find import Precondition

ENTRIES_MAX: Final = 10
_ENTRY_ID: Final = re.compile("[A-Za-z0-9_-]{1,80}")
_TRACE: Final = "AWSTraceHeader"
_ATTEMPT: Final = "ReceiveRequestAttemptId"
_DEDUPLICATION: Final = "MessageDeduplicationId"
_GROUP: Final = "MessageGroupId"
_SENDER: Final = "SenderId"
_ENCODING: Final = "mq.encoding"
_CLAIMED_S: Final = 30.0
_PLAIN_TEXT: Final = Envelope(extension="txt")

Settle: TypeAlias = Callable[[Asked, Opened, Result], Awaitable[Result]]


@dataclass(frozen=True, slots=True)
class Draft:
    """A message to be sent, and the answer to its sender."""

    posted: Posted
    result: Result
    is_fifo: bool

    def sent(self, message_id: MessageId) -> Result:
        more = {"SequenceNumber": sequence_of(message_id)} if self.is_fifo else {}
        return {"MessageId": message_id.text[:UUID_CHARS], **self.result, **more}


def _draft(asked: Asked, opened: Opened, said: Result, in_batch: bool) -> Draft:
    """Raises SqsError for a message that the queue does not take."""
    kept, body = opened.kept, said["MessageBody"]
    if not body:
        raise missing("MessageBody")
    typed.check_text(body)
    attributes = said.get("MessageAttributes", {})
    size = len(encoded := body.encode())
    if attributes:
        typed.check(attributes)
        size += typed.size_of(attributes)
    system = _system(said) if "MessageSystemAttributes" in said else {}
    body_max = opened.settings.body_bytes_max
    if size > kept.size_max or len(encoded) > body_max:
        raise SqsError(
            "InvalidParameterValueException",
            "One or more parameters are invalid. Reason: Message must be shorter than "
            f"{min(kept.size_max, body_max)} bytes.",
        )
    for name in (_GROUP, _DEDUPLICATION):
        if name in said:
            check_word(said[name], name)
    group = key = None
    if kept.is_fifo:
        group = _group(said, in_batch)
        once = system[_DEDUPLICATION] = _once(kept, said, encoded)
        scope = f"{kept.forgot_ms}\n" if kept.forgot_ms else ""
        if kept.deduplicates_by_group:
            scope += f"{group.text}\n"
        key = Key.parse(_digest(f"{scope}{once}".encode()))
    else:
        _check_standard(said)
        if _GROUP in said:
            system[_GROUP] = said[_GROUP]
    result = _digests(said)
    due_ms = _due_ms(asked, opened, said)
    if due_ms is None and not (attributes or system):
        return Draft(Posted(_PLAIN_TEXT, encoded), result, kept.is_fifo)
    headers, held, extension = stored(encoded, attributes, system, group)
    envelope = Envelope(
        extension=extension, due_ms=due_ms, headers=headers, idempotency=key, group=group
    )
    return Draft(Posted(envelope, held), result, kept.is_fifo)


def _digests(said: Result) -> Result:
    """What the sender compares."""
    found = {"MD5OfMessageBody": typed.text_digest(said["MessageBody"])}
    for name in ("MessageAttributes", "MessageSystemAttributes"):
        if attributes := said.get(name):
            found[f"MD5Of{name}"] = typed.digest(attributes)
    return found


def _system(said: Result) -> dict[str, str]:
    found = said.get("MessageSystemAttributes", {})
    for name, value in found.items():
        if name != _TRACE:
            raise SqsError(
                "InvalidParameterValueException",
                f"Message system attribute name '{name}' is invalid. The only valid name is "
                f"{_TRACE}.",
            )
        if value["DataType"] != "String" or not value.get("StringValue"):
            raise SqsError(
                "InvalidParameterValueException",
                f"Message system attribute '{_TRACE}' must contain a non-empty value of type "
                "'String'.",
            )
    return {name: value["StringValue"] for name, value in found.items()}


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _group(said: Result, in_batch: bool) -> Group:
    if _GROUP not in said:
        error = missing(_GROUP)
        raise SqsError("InvalidParameterValueException", error.message) if in_batch else error
    return Group.parse(said[_GROUP])


def _once(kept: Kept, said: Result, body: bytes) -> str:
    """The text that a FIFO message shares with its repeats."""
    once: str | None = said.get(_DEDUPLICATION)
    if once is None and not kept.deduplicates_by_content:
        raise SqsError(
            "InvalidParameterValueException",
            "The queue should either have ContentBasedDeduplication enabled or "
            "MessageDeduplicationId provided explicitly",
        )
    return _digest(body) if once is None else once


def _check_standard(said: Result) -> None:
    if _DEDUPLICATION in said:
        raise invalid(
            said[_DEDUPLICATION],
            _DEDUPLICATION,
            "The request includes a parameter that is not valid for this queue type.",
        )


def _due_ms(asked: Asked, opened: Opened, said: Result) -> int | None:
    delay_s = said.get("DelaySeconds")
    if delay_s is None:
        return None
    if opened.kept.is_fifo and delay_s:
        raise invalid(
            delay_s,
            "DelaySeconds",
            "The request include parameter that is not valid for this queue type.",
        )
    if not 0 <= delay_s <= DELAY_S_MAX:
        raise invalid(delay_s, "DelaySeconds", f"DelaySeconds must be >= 0 and <= {DELAY_S_MAX}.")
    if opened.kept.is_fifo:
        return None
    if not delay_s and not opened.settings.delay_default_s:
        return None
    return asked.service.broker.root.now_ms() + int(delay_s) * 1000


async def send(asked: Asked, said: Result) -> Result:
    """SendMessage. Durable on return: yes."""
    opened = await asked.open(said["QueueUrl"], Right.PUBLISH)
    draft = _draft(asked, opened, said, in_batch=False)
    broker, body = asked.service.broker, draft.posted.body
    reservation = broker.memory.receive(len(body))
    future = broker.publisher.begin(opened.queue, body, draft.posted.envelope, reservation)
    return draft.sent(await asyncio.shield(future))


def _check_entries(entries: Sequence[Result], operation: str) -> None:
    """Raises SqsError for entries that no batch may have."""
    if not entries:
        raise SqsError(
            "EmptyBatchRequest",
            f"There should be at least one {operation}RequestEntry in the request.",
        )
    if len(entries) > ENTRIES_MAX:
        raise SqsError(
            "TooManyEntriesInBatchRequest",
            f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent "
            f"{len(entries)}.",
        )
    ids = [each["Id"] for each in entries]
    for each in ids:
        if _ENTRY_ID.fullmatch(each) is None:
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and "
                "underscores. It can be at most 80 letters long.",
            )
    for number, each in enumerate(ids):
        if each in ids[:number]:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {each} repeated.")


async def send_batch(asked: Asked, said: Result) -> Result:
    """SendMessageBatch. Durable on return: each message that succeeded."""
    opened = await asked.open(said["QueueUrl"], Right.PUBLISH)
    entries = said["Entries"]
    _check_entries(entries, "SendMessageBatch")
    size = sum(
        len(each["MessageBody"].encode("utf-8", "surrogatepass"))
        + typed.size_of(each.get("MessageAttributes", {}))
        for each in entries
    )
    if size > MESSAGE_BYTES_MAX:
        raise SqsError(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. You have sent "
            f"{size} bytes.",
        )
    drafts: dict[str, Draft] = {}
    failed: dict[str, BaseException] = {}
    for each in entries:
        try:
            drafts[each["Id"]] = _draft(asked, opened, each, in_batch=True)
        except (SqsError, MqError) as error:
            failed[each["Id"]] = error
    sent: dict[str, Result] = {}
    if drafts:
        rows = [each.posted for each in drafts.values()]
        ends = await asked.service.broker.publisher.rows(opened.queue, rows)
        for (entry, draft), end in zip(drafts.items(), ends, strict=True):
            if isinstance(end, MessageId):
                sent[entry] = {"Id": entry, **draft.sent(end)}
            else:
                failed[entry] = end
    return _batch(asked, entries, sent, failed)


def _batch(
    asked: Asked,
    entries: Sequence[Result],
    done: dict[str, Result],
    failed: dict[str, BaseException],
) -> Result:
    found: Result = {}
    rows = [done[each["Id"]] for each in entries if each["Id"] in done]
    if rows:
        found["Successful"] = rows
    bad = [
        _failed(asked, each["Id"], failed[each["Id"]]) for each in entries if each["Id"] in failed
    ]
    if bad:
        found["Failed"] = bad
    return found


def _failed(asked: Asked, entry: str, error: BaseException) -> Result:
    found = failure_of(error)
    if found is None:
        asked.service.error_responses.answer(error, "POST", "/")
        found = SqsError("InternalFailure", "The request failed.")
    return {
        "Id": entry,
        "SenderFault": found.is_senders,
        "Code": found.query_code,
        "Message": found.message,
    }


async def receive(asked: Asked, said: Result) -> Result:
    """ReceiveMessage. Durable on return: each message's visibility."""
    opened = await asked.open(said["QueueUrl"], Right.CONSUME)
    count = said.get("MaxNumberOfMessages", 1)
    if not 1 <= count <= ENTRIES_MAX:
        raise invalid(
            count, "MaxNumberOfMessages", f"Must be between 1 and {ENTRIES_MAX}, if provided."
        )
    wait_s = said.get("WaitTimeSeconds", opened.kept.wait_s)
    if not 0 <= wait_s <= WAIT_S_MAX:
        raise invalid(wait_s, "WaitTimeSeconds", f"Must be >= 0 and <= {WAIT_S_MAX}, if provided.")
    visibility_s = _visibility_s(opened, said)
    # A message that stays visible is claimed and released: its release is known at once.
    claimed_s = _CLAIMED_S if visibility_s == 0 else visibility_s
    broker = asked.service.broker
    attempt = _attempt(opened, said, visibility_s)
    found = None
    if attempt is not None:
        visible_s = visibility_s or opened.settings.visibility_s
        found = await asked.attempts.again(attempt, visible_s)
    if found is None:
        if count == 1 and not wait_s and opened.queue.active is None and not opened.kept.is_dead:
            found = await _next(opened.queue, claimed_s)
        else:
            terms = consumer_terms(asked, Wanted(visibility_s=claimed_s, wait_s=wait_s))
            found = await _fetch(asked, opened, count, terms, wait_s)
    rows = []
    try:
        for number, delivery in enumerate(found):
            found[number] = delivery._replace(descriptor=None)  # `_body` closes it.
            rows.append(await _received(asked, opened, said, delivery))
        if visibility_s == 0:
            work = (settle(broker, each.queue, each.id, Reschedule(0)) for each in found)
            await asyncio.gather(*work, return_exceptions=True)
        elif attempt is not None and found:
            asked.attempts.keep(attempt, found)
    except BaseException:
        broker.begin_release(found, unhandled=True)
        raise
    return {"Messages": rows} if rows else {}


def _visibility_s(opened: Opened, said: Result) -> int | None:
    """How long a receive hides its messages; None: as the queue has it. Raises SqsError."""
    visibility_s: int | None = said.get("VisibilityTimeout")
    if visibility_s is not None and not 0 <= visibility_s <= VISIBILITY_S_MAX:
        raise invalid(visibility_s, "VisibilityTimeout", f"Must be >= 0 and <= {VISIBILITY_S_MAX}.")
    return 0 if visibility_s is None and not int(opened.settings.visibility_s) else visibility_s


def _attempt(opened: Opened, said: Result, visibility_s: float | None) -> Attempt | None:
    """By which the receive may be repeated; None: it may not."""
    if not opened.kept.is_fifo or _ATTEMPT not in said:
        return None
    check_word(said[_ATTEMPT], _ATTEMPT)
    return None if visibility_s == 0 else Attempt(opened.queue.name, said[_ATTEMPT])


async def _next(queue: Queue, visibility_s: float | None) -> list[Delivery]:
    """The next message; none if there is none now."""
    fetch = Fetch(queue, visibility_s=visibility_s)
    fetch.begin()
    try:
        delivery = await asyncio.shield(fetch.future)
    except asyncio.CancelledError:
        fetch.abandon()
        raise
    return [] if delivery is None else [delivery]


async def _fetch(
    asked: Asked, opened: Opened, count: int, terms: Terms, wait_s: float
) -> list[Delivery]:
    broker = asked.service.broker
    if len(opened.sources) == 1:
        return await fetching.fetch_many(broker, opened.queue.name, count, terms, wait_s)
    found: list[Delivery] = []
    sources: list[Queue] = []
    try:
        for name in opened.sources:
            with contextlib.suppress(QueueNotFound):
                sources.append(await broker.queue(name))
                found += await fetching.fetch_many(broker, name, count - len(found), terms)
            if len(found) == count:
                break
        if found or not wait_s:
            return found
        return await _first(asked, sources, terms, wait_s)
    except BaseException:
        broker.begin_release(found, unhandled=True)
        raise


async def _first(
    asked: Asked, sources: Sequence[Queue], terms: Terms, wait_s: float
) -> list[Delivery]:
    """The first message of any source. A message that another source delivers at the same moment
    returns to it. Raises the error of a source if none has a message.
    """
    consuming = asked.service.broker.consuming
    polls = [consuming.begin_poll(each, wait_s, terms) for each in sources]
    futures = [each.future for each in polls]
    try:
        await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    except asyncio.CancelledError:
        for poll in polls:
            poll.abandon()
        raise
    for poll in polls:
        if not poll.future.done():
            poll.abandon()
    ends = [each for each in futures if each.done() and not each.cancelled()]
    found = [each.result() for each in ends if each.exception() is None]
    deliveries = [each for each in found if each is not None]
    asked.service.broker.begin_release(deliveries[1:], unhandled=True)
    errors = [error for each in ends if (error := each.exception()) is not None]
    if errors and not deliveries:
        raise errors[0]
    return deliveries[:1]


async def _received(asked: Asked, opened: Opened, said: Result, delivery: Delivery) -> Result:
    content = await _content(asked, delivery)
    body = content.body
    row: Result = {
        "MessageId": delivery.id.text[:UUID_CHARS],
        "ReceiptHandle": Handle(delivery.queue, delivery.id, delivery.stamp.receives).text(),
        "MD5OfBody": typed.text_digest(body),
        "Body": body,
    }
    names = {*said.get("AttributeNames", ()), *said.get("MessageSystemAttributeNames", ())}
    shown = _shown(asked, opened, delivery, content.system) if names else {}
    if not names & {"All", "ALL"}:
        shown = {name: value for name, value in shown.items() if name in names}
    if shown:
        row["Attributes"] = shown
    chosen = dict(typed.chosen(content.attributes, said.get("MessageAttributeNames", ())))
    if content.encoding:
        chosen[_ENCODING] = {"StringValue": content.encoding, "DataType": "String"}
    if chosen:
        row["MessageAttributes"] = chosen
        row["MD5OfMessageAttributes"] = typed.digest(chosen)
    return row


@dataclass(frozen=True, slots=True)
class _Content:
    """A message as its receiver sees it."""

    body: str
    encoding: str
    """"" for a text, "base64" for other bytes, and "url" for the address of a body that is too
    large for SQS.
    """
    attributes: typed.Attributes
    system: Mapping[str, str]


async def _content(asked: Asked, delivery: Delivery) -> _Content:
    attributes, system = attributes_in(delivery.headers)
    is_marked = is_whole(delivery.headers)
    held = await _held(asked, delivery, DOCUMENT_BYTES_MAX if is_marked else MESSAGE_BYTES_MAX)
    if is_marked and held is not None and (whole := document_in(held)) is not None:
        return _Content(whole[0], "", whole[1], system)
    if held is None or len(held) > MESSAGE_BYTES_MAX:
        path = f"/{delivery.queue.text}/messages/{delivery.id.text}"
        body = json.dumps({"url": asked.home.base + path, "size": delivery.size})
        return _Content(body, "url", attributes, system)
    try:
        text = held.decode()
        typed.check_text(text)
    except (UnicodeDecodeError, SqsError):
        return _Content(base64.b64encode(held).decode("ascii"), "base64", attributes, system)
    return _Content(text, "", attributes, system)


async def _held(asked: Asked, delivery: Delivery, most: int) -> bytes | None:
    """The body; None: it has more bytes than `most`."""
    if delivery.body is not None or delivery.descriptor is None:
        return bytes(delivery.body or b"")
    if delivery.size > most:
        asked.service.broker.root.files.close(delivery.descriptor)
        return None
    source = download(asked.service.broker, delivery.descriptor, delivery.offset, delivery.size)
    try:
        return b"".join([chunk async for chunk in source.chunks()])
    finally:
        await source.close()


def _shown(
    asked: Asked, opened: Opened, delivery: Delivery, system: Mapping[str, str]
) -> dict[str, str]:
    visible_s = opened.settings.visibility_s
    found = {
        _SENDER: asked.home.account,
        "SentTimestamp": str(delivery.id.published_ms),
        "ApproximateReceiveCount": str(delivery.stamp.attempts),
        "ApproximateFirstReceiveTimestamp": str(
            min(asked.service.broker.root.now_ms(), delivery.stamp.due_ms - round(visible_s * 1000))
            if delivery.stamp.receives > 1
            else asked.service.broker.root.now_ms()
        ),
        **system,
    }
    group = next((value for name, value in delivery.headers if name == GROUPED_BY), None)
    if group is not None:
        found[_GROUP] = group
    if opened.kept.is_fifo:
        found["SequenceNumber"] = sequence_of(delivery.id)
    return found


def _handle(opened: Opened, text: str) -> Handle:
    """Raises SqsError for a handle of another queue."""
    handle = handle_of(text)
    if handle.queue not in (opened.queue.name, opened.queue.name.sideline()):
        raise bad_handle(text)
    return handle


def _same(opened: Opened, handle: Handle) -> Precondition | None:
    """A FIFO queue's handle is of one delivery; a standard queue's is of the message."""
    return IfReceives(handle.receives) if opened.kept.is_fifo else None


def _expired(text: str) -> SqsError:
    return invalid(text, "ReceiptHandle", "The receipt handle has expired.")


async def _delete(asked: Asked, opened: Opened, said: Result) -> Result:
    text = said["ReceiptHandle"]
    handle = _handle(opened, text)
    try:
        how = Remove(_same(opened, handle))
        await settle(asked.service.broker, handle.queue, handle.id, how)
    except MessageNotFound:
        pass  # A second delete is a success.
    except DeliveredAgain:
        raise _expired(text) from None
    return {}


async def delete(asked: Asked, said: Result) -> Result:
    """DeleteMessage. Durable on return: yes."""
    return await _alone(_delete, asked, said)


async def _change(asked: Asked, opened: Opened, said: Result) -> Result:
    text, visible_s = said["ReceiptHandle"], said.get("VisibilityTimeout")
    if visible_s is None:
        raise missing("VisibilityTimeout")
    if not 0 <= visible_s <= VISIBILITY_S_MAX:
        raise invalid(
            visible_s,
            "VisibilityTimeout",
            f"VisibilityTimeout must be an integer between 0 and {VISIBILITY_S_MAX}.",
        )
    handle = _handle(opened, text)
    broker = asked.service.broker
    given = GivenBack.NO if visible_s else GivenBack.YES
    try:
        reading = await broker.read(handle.queue, handle.id, lambda size, receives: None, False)
        if reading.state is not State.DELAYED or not reading.stamp.receives:
            raise SqsError("MessageNotInflight", "The message referred to isn't in flight.")
        how = Reschedule(visible_s, _same(opened, handle), given)
        await settle(broker, handle.queue, handle.id, how)
    except MessageNotFound:
        raise invalid(
            text,
            "ReceiptHandle",
            "Message does not exist or is not available for visibility timeout change.",
        ) from None
    except DeliveredAgain:
        raise _expired(text) from None
    return {}


async def change(asked: Asked, said: Result) -> Result:
    """ChangeMessageVisibility. Durable on return: yes."""
    return await _alone(_change, asked, said)


async def _alone(act: Settle, asked: Asked, said: Result) -> Result:
    """Settles one message, whose handle's error has other words than in a batch."""
    opened = await asked.open(said["QueueUrl"], Right.CONSUME)
    try:
        return await act(asked, opened, said)
    except SqsError as error:
        if error.kind == "ReceiptHandleIsInvalid":
            raise SqsError(error.kind, "The input receipt handle is invalid.") from None
        raise


def _each(operation: str, act: Settle) -> Callable[[Asked, Result], Awaitable[Result]]:
    async def batch(asked: Asked, said: Result) -> Result:
        opened = await asked.open(said["QueueUrl"], Right.CONSUME)
        entries = said["Entries"]
        _check_entries(entries, operation)
        work = (act(asked, opened, each) for each in entries)
        ends = await asyncio.gather(*work, return_exceptions=True)
        done: dict[str, Result] = {}
        failed: dict[str, BaseException] = {}
        for each, end in zip(entries, ends, strict=True):
            if isinstance(end, BaseException):
                failed[each["Id"]] = end
            else:
                done[each["Id"]] = {"Id": each["Id"]}
        return _batch(asked, entries, done, failed)

    return batch


delete_batch: Final = _each("DeleteMessageBatch", _delete)
"""DeleteMessageBatch. Durable on return: each that succeeded."""
change_batch: Final = _each("ChangeMessageVisibilityBatch", _change)
"""ChangeMessageVisibilityBatch. Durable on return: each that succeeded."""
