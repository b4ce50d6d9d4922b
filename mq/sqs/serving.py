"""Serves SQS requests: which they are, both forms of them, and their operations."""

import os
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from mq.access.callers import ANONYMOUS, Caller
from mq.access.errors import Forbidden, Unauthenticated
from mq.access.secrets import Signer
from mq.broker.broker import Broker
from mq.http.answers import Answer, Result
from mq.http.bodies import held_body
from mq.http.dispatcher import refuse_foreign
from mq.http.metering import OF_SQS
from mq.http.request import Request
from mq.http.service import Service
from mq.sqs import json_form, messages, moves, query_form, queues
from mq.sqs.attempts import Attempts
from mq.sqs.errors import SqsError
from mq.sqs.front import Asked, failure_of
from mq.sqs.shapes import OPERATIONS, Fields
from mq.sqs.signing import Signature, Signed, check, check_time, signature_of

# A batch of 1 MiB, each byte escaped, in JSON or in a form.
BODY_BYTES_MAX: Final = 4 << 20
_PATH: Final = re.compile(r"/|/[0-9]{12}/[^/]+/?")
# A web page of any origin can have a browser send a GET, and a browser may not say whose it is.
_READS: Final = ("Get", "List")
_UNPROVEN: Final = "InvalidSignatureException"
_ACTION: Final = re.compile("(?:^|&)Action=")
_SIGNED: Final = "AWS4-HMAC-SHA256"
_FORM: Final = "application/x-www-form-urlencoded"

Operation: TypeAlias = Callable[[Asked, dict[str, Any]], Awaitable[dict[str, Any]]]

_OPERATIONS: Final[Mapping[str, Operation]] = {
    "AddPermission": queues.permit,
    "CancelMessageMoveTask": moves.cancel,
    "ChangeMessageVisibility": messages.change,
    "ChangeMessageVisibilityBatch": messages.change_batch,
    "CreateQueue": queues.create,
    "DeleteMessage": messages.delete,
    "DeleteMessageBatch": messages.delete_batch,
    "DeleteQueue": queues.delete,
    "GetQueueAttributes": queues.read_attributes,
    "GetQueueUrl": queues.url,
    "ListDeadLetterSourceQueues": queues.dead_letter_sources,
    "ListMessageMoveTasks": moves.read_all,
    "ListQueueTags": queues.read_tags,
    "ListQueues": queues.read_all,
    "PurgeQueue": queues.purge,
    "ReceiveMessage": messages.receive,
    "RemovePermission": queues.forbid,
    "SendMessage": messages.send,
    "SendMessageBatch": messages.send_batch,
    "SetQueueAttributes": queues.change_attributes,
    "StartMessageMoveTask": moves.start,
    "TagQueue": queues.tag,
    "UntagQueue": queues.untag,
}


def is_sqs(request: Request, is_taken: bool) -> bool:
    """Whether a request is SQS's, in either form. `is_taken`: an endpoint of mq has its path, and a
    form may be a message; SDKs sign theirs.
    """
    headers = request.headers
    if "X-Amz-Target" in headers:
        return request.method == "POST"
    if _PATH.fullmatch(request.path) is None:
        return False
    if _ACTION.search(request.raw_query):
        return request.method in ("GET", "POST")
    is_form = request.method == "POST" and request.content_type == _FORM
    return is_form and (not is_taken or headers.get("Authorization", "").startswith(_SIGNED))


class Front:
    """Answers the SQS requests of one broker."""

    def __init__(self, broker: Broker) -> None:
        self._attempts = Attempts(broker)

    def __call__(self, service: Service, request: Request, is_taken: bool = False) -> Result:
        """The answer to an SQS request; None: it is none. Raises ForeignOrigin."""
        if not is_sqs(request, is_taken):
            return None
        if "X-Amz-Target" in request.headers:
            request.operation = OF_SQS.get(_target(request))
        refuse_foreign(service.access, request)
        return _serve(service, request, self._attempts)


async def _serve(service: Service, request: Request, attempts: Attempts) -> Answer:
    request_id = _request_id()
    is_json = "X-Amz-Target" in request.headers
    try:
        # Before the body is held: an unknown caller has mq read nothing.
        caller, proof = _caller(service, request)
        # Counts the body in memory until the answer.
        reservation = service.broker.memory.receive()
        body = bytes(await held_body(service, request, BODY_BYTES_MAX, reservation))
        if proof is not None:
            proof.check(body)
        if is_json:
            name = _target(request)
            said = json_form.read(body, _shape(name))
        else:
            parameters = query_form.parameters(request.raw_query)
            if request.content_type == _FORM:
                parameters |= query_form.parameters(body.decode("utf-8", "replace"))
            name = parameters.get("Action", "")
            _shape(name)
            request.operation = OF_SQS[name]
            is_proven = proof is not None  # No page can sign.
            if request.method == "GET" and not is_proven and not name.startswith(_READS):
                raise SqsError("InvalidAction", f"{name} changes something: send it by POST.")
            if "QueueUrl" not in parameters and request.path != "/":
                parameters["QueueUrl"] = request.path
            said = query_form.read(name, parameters)
        service.broker.root.presence.refuse_away()
        asked = Asked(service, request, said.get("QueueUrl", request.path), caller, attempts)
        result = await _OPERATIONS[name](asked, said)
    except Exception as error:
        failure = failure_of(error)
        is_of_mq = failure is None or not failure.is_senders
        if failure is not None and failure.kind == _UNPROVEN:
            error = Unauthenticated(shown="Authorization" in request.headers)
        if is_of_mq or isinstance(error, Forbidden | Unauthenticated):
            # Logs it; not the query, which may have a signature.
            service.error_responses.answer(error, request.method, request.path)
        failure = failure or SqsError("InternalFailure", "The request failed.")
        return _failed(failure, is_json, request_id)
    headers = {"x-amzn-RequestId": request_id}
    if is_json:
        content = json_form.written(result) if OPERATIONS[name][1].fields else b"{}"
        return Answer(200, {**headers, "Content-Type": json_form.MEDIA_TYPE}, content)
    content = query_form.written(name, result, request_id)
    return Answer(200, {**headers, "Content-Type": query_form.MEDIA_TYPE}, content)


def _request_id() -> str:
    drawn = os.urandom(16).hex()
    return f"{drawn[:8]}-{drawn[8:12]}-4{drawn[13:16]}-8{drawn[17:20]}-{drawn[20:]}"


def _target(request: Request) -> str:
    return request.headers["X-Amz-Target"].removeprefix(json_form.TARGET)


class _Proof:
    """A signature whose caller and time are good, and which waits for the request's body."""

    def __init__(self, head: Signed, found: Signature, signer: Signer) -> None:
        self._head, self._found, self._signer = head, found, signer

    def check(self, body: bytes) -> None:
        """Raises SqsError, also for another secret than the caller's."""
        check(replace(self._head, body=body), self._found, self._signer.secret)


def _caller(service: Service, request: Request) -> tuple[Caller, _Proof | None]:
    """The caller, by signature, token or certificate. Raises SqsError, Unauthenticated."""
    access = service.access
    if not access.is_on:
        return ANONYMOUS, None
    headers: dict[str, str] = {}
    for name, value in request.headers.items():
        key = name.lower()
        headers[key] = f"{headers[key]},{value}" if key in headers else value
    head = Signed(request.method, request.path, request.raw_query, headers)
    found = signature_of(head)
    signer = None if found is None else access.signers.get(found.access_key)
    if found is None or signer is None:
        try:
            return request.caller(), None
        except Unauthenticated as error:
            raise Unauthenticated(error.shown or found is not None) from None
    check_time(found, datetime.fromtimestamp(service.broker.root.now_ms() / 1000, UTC))
    return signer.caller, _Proof(head, found, signer)


def _shape(name: str) -> Fields:
    if name not in OPERATIONS:
        raise SqsError(
            "UnknownOperationException", f"The action {name[:80]} is not valid for this endpoint."
        )
    return OPERATIONS[name][0]


def _failed(error: SqsError, is_json: bool, request_id: str) -> Answer:
    headers = {"x-amzn-RequestId": request_id}
    if is_json:
        more, body = json_form.failed(error)
        return Answer(error.status, {**headers, **more, "Content-Type": json_form.MEDIA_TYPE}, body)
    body = query_form.failed(error, request_id)
    return Answer(error.status, {**headers, "Content-Type": query_form.MEDIA_TYPE}, body)
