"""Create, list, describe, change and delete queues; their tags, permissions and purges."""

import base64
import binascii
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from mq.access.callers import Needs, Right, is_allowed
from mq.model.errors import MqError, QueueNotFound, SettingsChanged
from mq.model.names import QueueName
from mq.sqs import queue_attributes as attributes
from mq.sqs.errors import SqsError, invalid, missing, no_queue
from mq.sqs.front import Asked, Opened, Result
from mq.sqs.names import check_name, is_shortened, name_in_arn, queue_of
from mq.sqs.queue_attributes import COUNTS, READABLE, Kept, kept_of
from mq.sqs.shapes import OPERATIONS
from mq.store.core.unserved import mark_of
from mq.store.settings.registry import list_queues

LISTED_MAX: Final = 1000
PURGE_EVERY_S: Final = 60
ACTIONS_MAX: Final = 7
_NOTHING: Final[Mapping[str, str]] = {}
_OWNERS: Final = "Only the queue owner is allowed to invoke this action."
_UNKNOWN: Final = "Please refer to the appropriate WSDL for a list of valid actions. "
_ACTIONS: Final = frozenset({
    "*", "SendMessage", "ReceiveMessage", "DeleteMessage", "ChangeMessageVisibility",
    "GetQueueAttributes", "GetQueueUrl", "ListDeadLetterSourceQueues", "PurgeQueue",
})  # fmt: skip


async def create(asked: Asked, said: Result) -> Result:
    """CreateQueue. A queue of the same attributes is a success. A queue that an HTTP client made
    gets its label and the attributes that are named. Durable on return: yes.
    """
    name = said["QueueName"]
    check_name(name)
    queue = queue_of(name)
    asked.admit(Right.ADMIN, queue)
    wanted = attributes.checked(said.get("Attributes", {}), name, None)
    tags = _checked_tags(said.get("tags", {}), name)
    await _check_target(asked, wanted, name)
    created = await asked.service.queue_room.create(queue)
    if not created:
        opened = await asked.open_named(name, Right.ADMIN)
        if opened.kept.created_s:
            differs = attributes.differing(opened.kept, opened.settings, wanted)
            if differs is not None:
                raise SqsError(
                    "QueueNameExists",
                    "A queue already exists with the same name and a different value for attribute "
                    f"{differs}",
                )
            return {"QueueUrl": asked.home.url(name)}
    # A queue that others made, or whose maker died here, keeps the settings that are not named.
    changed = {**attributes.defaults(), **wanted} if created else wanted
    now_s = asked.now_s

    def labelled(kept: Kept) -> Kept:
        made = kept if kept.created_s else replace(kept, created_s=now_s)
        return replace(made, name=name, attributes=wanted, tags=tags, modified_s=now_s)

    kept = await _change(asked, name, labelled, changed)
    await _mark_target(asked, kept)
    return {"QueueUrl": asked.home.url(name)}


async def _check_target(asked: Asked, wanted: Mapping[str, str], name: str) -> None:
    """Raises SqsError for a dead-letter queue that is missing or of the other kind."""
    policy = wanted.get("RedrivePolicy")
    target = name_in_arn(json.loads(policy)["deadLetterTargetArn"]) if policy else None
    if target is None:
        return
    said = f"Value {policy} for parameter RedrivePolicy is invalid. Reason: "
    try:
        await asked.open_named(target, Right.PUBLISH)
    except QueueNotFound:
        raise SqsError(
            "InvalidParameterValueException", said + "Dead letter target does not exist."
        ) from None
    if target.endswith(".fifo") != name.endswith(".fifo"):
        raise SqsError(
            "InvalidParameterValueException",
            said + "Dead-letter queue must be same type of queue as the source.",
        )


async def _mark_target(asked: Asked, kept: Kept) -> None:
    """Has the dead-letter queue give the messages of its sideline, too."""
    target = kept.dead_letters
    if target is None:
        return
    await asked.service.broker.create_queue(queue_of(target).sideline())
    await _change(asked, target, lambda found: replace(found, is_dead=True))


async def _change(
    asked: Asked, name: str, change: Callable[[Kept], Kept], changed: Mapping[str, str] = _NOTHING
) -> Kept:
    """Changes what a queue's label keeps, and the settings of changed attributes, whatever others
    change meanwhile. Returns the new contents. Durable on return: yes.
    """
    queue = queue_of(name)
    broker = asked.service.broker
    while True:
        found = await broker.settings(queue)
        before = kept_of(name, found.settings)
        after = change(before)
        if after == before:
            return after
        patch = attributes.patch_of(after, changed, found.settings)
        try:
            await broker.change_settings(queue, patch, found.tag.__eq__)
        except SettingsChanged:
            continue
        await asked.service.following.tell_of_change()
        return after


async def url(asked: Asked, said: Result) -> Result:
    """GetQueueUrl."""
    opened = await asked.open_named(said["QueueName"], Needs.ANY)
    return {"QueueUrl": asked.home.url(opened.name)}


async def delete(asked: Asked, said: Result) -> Result:
    """DeleteQueue. Durable on return: yes."""
    opened = await asked.open(said["QueueUrl"], Right.ADMIN)
    broker = asked.service.broker
    if opened.kept.is_dead:
        with contextlib.suppress(QueueNotFound):
            await broker.delete_queue(opened.queue.name.sideline())
    await broker.delete_queue(opened.queue.name)
    return {}


async def read_all(asked: Asked, said: Result) -> Result:
    """ListQueues."""
    most = said.get("MaxResults")
    names, after = await _listed(
        asked, said.get("QueueNamePrefix", ""), most, said.get("NextToken")
    )
    found: Result = {}
    if names:
        home = asked.home
        found["QueueUrls"] = [home.url(each) for each in names]
    if most is not None and after:
        found["NextToken"] = after
    return found


async def _listed(
    asked: Asked, prefix: str, most: int | None, token: str | None
) -> tuple[list[str], str | None]:
    """SQS names of queues, and the token of the next page."""
    if most is not None and not 1 <= most <= LISTED_MAX:
        raise invalid(most, "MaxResults", f"MaxResults must be between 1 and {LISTED_MAX}")
    broker = asked.service.broker
    is_on = asked.service.access.is_on

    def is_shown(queue: QueueName) -> bool:
        if queue.is_sideline:
            return False
        return not is_on or is_allowed(asked.caller, Needs.ANY, queue.text)

    count = LISTED_MAX if most is None else most
    after = None if token is None else _place(token)
    names: list[str] = []
    while True:
        found = await broker.committer.call(
            list_queues, broker.root, LISTED_MAX + 1, after, is_shown
        )
        for number, queue in enumerate(found):
            name = await name_of(asked, queue)
            if name.startswith(prefix):
                names.append(name)
            if len(names) == count:
                more = number + 1 < len(found)
                return names, (_token(queue) if more else None)
        if len(found) <= LISTED_MAX:
            return names, None
        after = found[-1]


def _token(queue: QueueName) -> str:
    return base64.urlsafe_b64encode(queue.text.encode()).decode("ascii")


def _place(token: str) -> QueueName:
    try:
        return QueueName.parse(base64.urlsafe_b64decode(token.encode("ascii")).decode("ascii"))
    except (ValueError, binascii.Error, MqError):
        raise SqsError("InvalidParameterValueException", "Invalid or expired NextToken.") from None


async def name_of(asked: Asked, queue: QueueName) -> str:
    """A queue's SQS name, which its label keeps where it is not its name in mq."""
    if not is_shortened(queue):
        return queue.text
    try:
        return kept_of(queue.text, (await asked.service.broker.settings(queue)).settings).name
    except MqError:
        return queue.text


async def dead_letter_sources(asked: Asked, said: Result) -> Result:
    """ListDeadLetterSourceQueues."""
    opened = await asked.open(said["QueueUrl"], Needs.ANY)
    names = await sources_of(asked, opened.name)
    most = said.get("MaxResults")
    token = said.get("NextToken")
    if most is not None and not 1 <= most <= LISTED_MAX:
        raise invalid(most, "MaxResults", f"MaxResults must be between 1 and {LISTED_MAX}")
    if token is not None:
        names = [each for each in names if queue_of(each) > _place(token)]
    shown = names if most is None else names[:most]
    home = asked.home
    found: Result = {"queueUrls": [home.url(each) for each in shown]}
    if len(shown) < len(names):
        found["NextToken"] = _token(queue_of(shown[-1]))
    return found


async def sources_of(asked: Asked, name: str) -> list[str]:
    """The queues whose dead letters go to this one."""
    found: list[str] = []
    token = None
    while True:
        names, token = await _listed(asked, "", None, token)
        for each in names:
            with contextlib.suppress(MqError):
                settings = (await asked.service.broker.settings(queue_of(each))).settings
                if kept_of(each, settings).dead_letters == name:
                    found.append(each)
        if token is None:
            return found


async def read_attributes(asked: Asked, said: Result) -> Result:
    """GetQueueAttributes."""
    opened = await asked.open(said["QueueUrl"], Needs.ANY)
    names = said.get("AttributeNames", ())
    for name in names:
        if name not in READABLE and name != "All":
            raise SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")
    if not names:
        return {}
    found = attributes.shown(opened.kept, opened.settings)
    size_max = min(opened.kept.size_max, opened.settings.body_bytes_max)
    found["MaximumMessageSize"] = str(size_max)
    found["QueueArn"] = asked.home.arn(opened.name)
    if opened.kept.permissions:
        found.setdefault("Policy", attributes.policy_of(opened.kept, found["QueueArn"]))
    if "All" in names or set(COUNTS) & set(names):
        found |= await _counts(asked, opened)
    if "All" not in names:
        found = {name: value for name, value in found.items() if name in names}
    return {"Attributes": found} if found else {}


async def _counts(asked: Asked, opened: Opened) -> dict[str, str]:
    totals = [0, 0, 0]
    for name in opened.sources:
        try:
            _, description = await asked.service.broker.describe(name)
        except QueueNotFound:
            if name == opened.queue.name:
                raise no_queue() from None
            continue
        counts = description.counts
        for at, count in enumerate((counts.ready, counts.in_flight, counts.delayed)):
            totals[at] += count
    return dict(zip(COUNTS, map(str, totals), strict=True))


async def change_attributes(asked: Asked, said: Result) -> Result:
    """SetQueueAttributes. Durable on return: yes."""
    opened = await asked.open(said["QueueUrl"], Right.ADMIN)
    if not said["Attributes"]:
        raise missing("Attribute.Name")
    changed = attributes.checked(said["Attributes"], opened.name, opened.kept)
    await _check_target(asked, changed, opened.name)
    now_s = asked.now_s
    kept = await _change(
        asked, opened.name, lambda kept: attributes.with_attributes(kept, changed, now_s), changed
    )
    await _mark_target(asked, kept)
    return {}


async def read_tags(asked: Asked, said: Result) -> Result:
    """ListQueueTags."""
    opened = await asked.open(said["QueueUrl"], Needs.ANY)
    return {"Tags": dict(opened.kept.tags)} if opened.kept.tags else {}


async def tag(asked: Asked, said: Result) -> Result:
    """TagQueue. Durable on return: yes."""
    opened = await asked.open(said["QueueUrl"], Right.ADMIN)
    tags = said["Tags"]
    if not tags:
        raise missing("Tags")

    def tagged(kept: Kept) -> Kept:
        return replace(kept, tags=_checked_tags({**kept.tags, **tags}, opened.name))

    await _change(asked, opened.name, tagged)
    return {}


def _checked_tags(tags: Mapping[str, str], name: str) -> Mapping[str, str]:
    if len(tags) > attributes.TAGS_MAX:
        raise SqsError("InvalidParameterValueException", f"Too many tags added for queue {name}.")
    return tags


async def untag(asked: Asked, said: Result) -> Result:
    """UntagQueue. Durable on return: yes."""
    opened = await asked.open(said["QueueUrl"], Right.ADMIN)
    keys = said["TagKeys"]
    if not keys:
        raise SqsError("InvalidParameterValueException", "Tag keys must be between 1 and 128 "
                       "characters in length.")  # fmt: skip

    def untagged(kept: Kept) -> Kept:
        return replace(kept, tags={k: v for k, v in kept.tags.items() if k not in keys})

    await _change(asked, opened.name, untagged)
    return {}


async def purge(asked: Asked, said: Result) -> Result:
    """PurgeQueue. Durable on return: yes."""
    opened = await asked.open(said["QueueUrl"], Right.ADMIN)
    broker = asked.service.broker
    known = await broker.committer.call(mark_of, broker.root, opened.queue.name)
    if known is not None and broker.root.now_ms() - known.ms < PURGE_EVERY_S * 1000:
        raise SqsError(
            "PurgeQueueInProgress",
            f"Only one PurgeQueue operation on {opened.name} is allowed every {PURGE_EVERY_S} "
            "seconds.",
        )
    for name in opened.sources:
        await broker.purge(name)
    if opened.kept.is_fifo:
        now_ms = broker.root.now_ms()
        await _change(asked, opened.name, lambda kept: replace(kept, forgot_ms=now_ms))
    return {}


async def permit(asked: Asked, said: Result) -> Result:
    """AddPermission: kept and shown, not enforced. Durable on return: yes."""
    opened = await asked.open(said["QueueUrl"], Right.ADMIN)
    label, actions, accounts = said["Label"], said["Actions"], said["AWSAccountIds"]
    for action in actions[: ACTIONS_MAX + 1]:
        if action not in _ACTIONS:
            raise SqsError(
                "InvalidParameterValueException",
                f"Value SQS:{action} for parameter ActionName is invalid. Reason: "
                + (_OWNERS if action in OPERATIONS else _UNKNOWN),
            )
    if not actions:
        raise missing("Actions")
    if len(actions) > ACTIONS_MAX:
        raise SqsError(
            "OverLimit", f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}."
        )
    if not accounts:
        raise invalid("[]", "PrincipalId", "Unable to verify.")

    def permitted(kept: Kept) -> Kept:
        if label in kept.permissions:
            raise invalid(label, "Label", "Already exists.")
        said = {"accounts": accounts, "actions": actions}
        return replace(kept, permissions={**kept.permissions, label: said})

    await _change(asked, opened.name, permitted)
    return {}


async def forbid(asked: Asked, said: Result) -> Result:
    """RemovePermission. Durable on return: yes."""
    opened = await asked.open(said["QueueUrl"], Right.ADMIN)
    label = said["Label"]

    def forbidden(kept: Kept) -> Kept:
        if label not in kept.permissions:
            raise invalid(label, "Label", "can't find label on existing policy.")
        rest = {name: each for name, each in kept.permissions.items() if name != label}
        return replace(kept, permissions=rest)

    await _change(asked, opened.name, forbidden)
    return {}
