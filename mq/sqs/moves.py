"""Move tasks: shovels that return a dead-letter queue's messages to the queues they came from, or
move them to another.

A task is a shovel of each of these queues, or one of the dead-letter queue itself, under one id.
"""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from mq.access.callers import Needs, Right
from mq.model.errors import MqError, ShovelNotFound, ShovelRunning
from mq.model.names import QueueName
from mq.model.shovel import Progress, RunState, Trigger
from mq.protocol.sidelines import Wanted
from mq.sqs.errors import SqsError, invalid
from mq.sqs.front import Asked, Result
from mq.sqs.names import FIFO, name_in_arn, queue_of
from mq.sqs.queues import name_of, sources_of

RATE_MAX: Final = 500
_LISTED_MAX: Final = 10


def _name(arn: str, parameter: str) -> str:
    name = name_in_arn(arn)
    if name is None:
        raise SqsError(
            "ResourceNotFoundException",
            f"You must use this format to specify the {parameter}: arn:<partition>:<service>:"
            "<region>:<account-id>:<resource-id>",
        )
    return name


async def _sources(asked: Asked, arn: str) -> tuple[str, list[str]]:
    """The dead-letter queue of an ARN, and the queues whose dead letters it has."""
    name = _name(arn, "SourceArn")
    try:
        await asked.open_named(name, Right.ADMIN)
    except (MqError, SqsError):
        raise SqsError(
            "ResourceNotFoundException",
            "The resource that you specified for the SourceArn parameter doesn't exist.",
        ) from None
    return name, await sources_of(asked, name)


async def start(asked: Asked, said: Result) -> Result:
    """StartMessageMoveTask."""
    rate = said.get("MaxNumberOfMessagesPerSecond")
    if rate is not None and not 1 <= rate <= RATE_MAX:
        raise invalid(
            rate, "MaxNumberOfMessagesPerSecond", f"Must be between 1 and {RATE_MAX}, if provided."
        )
    name, sources = await _sources(asked, said["SourceArn"])
    if not sources:
        raise SqsError(
            "InvalidParameterValueException",
            "Source queue must be configured as a Dead Letter Queue.",
        )
    into = await _destination(asked, name, said)
    for each in sources if into is None else [into]:
        asked.admit(Right.PUBLISH, queue_of(each))
    if any(row.is_under_way for row in await _tasks(asked, name, sources)):
        raise _running()
    shovels = asked.service.shovels
    task = shovels.new_id()
    # A message of many receives goes, too, and counts anew in its queue.
    wanted = Wanted(rate=rate, max_receives=0, renews=True)
    runs: dict[str, str] = {}
    try:
        if into is None:
            for each in sources:
                runs[each] = await shovels.begin(queue_of(each), wanted, task)
        else:
            wanted = replace(wanted, into=queue_of(into))
            runs[name] = await shovels.begin(queue_of(name), wanted, task)
    except MqError as error:
        for each in runs:
            await shovels.stop(queue_of(each))
        if isinstance(error, ShovelRunning):
            raise _running() from None
        raise
    return {"TaskHandle": _handle(name, runs)}


def _running() -> SqsError:
    return SqsError(
        "InvalidParameterValueException",
        "There is already a task running. Only one active task is allowed for a source queue arn "
        "at a given time.",
    )


async def _destination(asked: Asked, name: str, said: Result) -> str | None:
    """The queue that all messages go to; None: each goes to its own."""
    if "DestinationArn" not in said:
        return None
    into = _name(said["DestinationArn"], "DestinationArn")
    try:
        await asked.open_named(into, Needs.ANY)
    except (MqError, SqsError):
        raise SqsError(
            "ResourceNotFoundException",
            "The resource that you specified for the DestinationArn parameter doesn't exist.",
        ) from None
    if into == name:
        raise SqsError(
            "InvalidParameterValueException", "Source and destination queues are the same."
        )
    if into.endswith(FIFO) != name.endswith(FIFO):
        raise SqsError(
            "InvalidParameterValueException",
            "Source and destination queues must have the same type.",
        )
    return into


def _handle(name: str, runs: dict[str, str]) -> str:
    return base64.b64encode(json.dumps({"source": name, "runs": runs}).encode()).decode("ascii")


async def cancel(asked: Asked, said: Result) -> Result:
    """CancelMessageMoveTask."""
    try:
        found = json.loads(base64.b64decode(said["TaskHandle"], validate=True))
        runs = dict(found["runs"])
    except (ValueError, KeyError, TypeError, binascii.Error):
        raise SqsError(
            "InvalidParameterValueException", "Value for parameter TaskHandle is invalid."
        ) from None
    moved = 0
    was_running = False
    for source, run_id in runs.items():
        asked.admit(Right.ADMIN, queue_of(source))
        try:
            before = await asked.service.shovels.read(queue_of(source))
        except (ShovelNotFound, MqError):
            continue
        if before.run is None or before.run.id != run_id or not before.run.state.is_under_way:
            continue
        was_running = True
        shown = await asked.service.shovels.stop(queue_of(source))
        moved += 0 if shown.run is None else shown.run.moved
    if not was_running:
        raise SqsError("ResourceNotFoundException", "Task does not exist.")
    return {"ApproximateNumberOfMessagesMoved": moved}


async def read_all(asked: Asked, said: Result) -> Result:
    """ListMessageMoveTasks: the latest first."""
    most = said.get("MaxResults", 1)
    if not 1 <= most <= _LISTED_MAX:
        raise invalid(most, "MaxResults", f"Must be between 1 and {_LISTED_MAX}, if provided.")
    name, sources = await _sources(asked, said["SourceArn"])
    tasks = (await _tasks(asked, name, sources))[:most]
    return {"Results": [await _shown(asked, name, each) for each in tasks]} if tasks else {}


@dataclass(frozen=True, slots=True)
class _Task:
    """The runs of a task, each by its shovel's SQS queue."""

    runs: dict[str, Progress]

    @property
    def began_ms(self) -> int:
        return min(each.began_ms for each in self.runs.values())

    @property
    def is_under_way(self) -> bool:
        return any(each.state.is_under_way for each in self.runs.values())

    @property
    def status(self) -> str:
        if self.is_under_way:
            return "RUNNING"
        if any(each.error or each.state is RunState.INTERRUPTED for each in self.runs.values()):
            return "FAILED"
        is_whole = all(each.state is RunState.DONE for each in self.runs.values())
        return "COMPLETED" if is_whole else "CANCELLED"


async def _shown(asked: Asked, name: str, task: _Task) -> Result:
    runs = list(task.runs.values())
    row: Result = {
        "Status": task.status,
        "SourceArn": asked.home.arn(name),
        "ApproximateNumberOfMessagesMoved": sum(each.moved for each in runs),
        "StartedTimestamp": task.began_ms,
    }
    if task.is_under_way:
        row["TaskHandle"] = _handle(name, {queue: each.id for queue, each in task.runs.items()})
    if runs[0].into:
        row["DestinationArn"] = asked.home.arn(await name_of(asked, QueueName.parse(runs[0].into)))
    if runs[0].rate:
        row["MaxNumberOfMessagesPerSecond"] = runs[0].rate
    if error := next((each.error for each in runs if each.error), None):
        row["FailureReason"] = error
    return row


async def _tasks(asked: Asked, name: str, sources: Sequence[str]) -> list[_Task]:
    """The last tasks of a dead-letter queue, the latest first. A shovel that a request of HTTP
    began is one.
    """
    found: dict[str, _Task] = {}
    for queue in (name, *sources):
        try:
            shown = await asked.service.shovels.read(queue_of(queue))
        except MqError:
            continue
        runs = [*([] if shown.run is None else [shown.run]), *shown.earlier]
        for run in runs:
            if run.by is Trigger.REQUEST and not run.dry_run:
                found.setdefault(run.id, _Task({})).runs[queue] = run
    return sorted(found.values(), key=lambda each: -each.began_ms)
