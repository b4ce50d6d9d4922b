"""`mqctl send`: publishes what is said, files, stdin, or stdin's lines."""

import os
import stat
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import IO, Any, Final

import click

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, QueueNotFound, Unanswered
from mq.client.values import NewMessage
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.names import EXTENSIONS
from mq.tools.mqctl.arguments import MOMENT, SECONDS, headers_of, message_options, queue_argument
from mq.tools.mqctl.complaints import problem_said, problem_text
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.reading import Descriptor, Pieces
from mq.tools.mqctl.running import run
from mq.tools.mqctl.sending_lines import Said, SendingLines

_STDIN: Final = "-"


@dataclass(frozen=True, slots=True)
class _Source:
    """Where a message's body is: a text, a file, or stdin."""

    name: str
    text: str | None = None


@click.command()
@queue_argument
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option(
    "--files",
    "-f",
    is_flag=True,
    help="The MESSAGEs are names of files, each one message; - is stdin.",
)
@click.option("--lines", "-l", is_flag=True, help="Each line of stdin is a message.")
@click.option("--quiet", "-q", is_flag=True, help="Do not print ids.")
@click.option("--delay", type=SECONDS, default=None, help="Ready after so many seconds.")
@click.option("--at", type=MOMENT, default=None, help="Ready at this time (RFC 3339).")
@message_options
@click.option(
    "--idempotency-key",
    default=None,
    help="Publishes with the same are one, for as long as the queue remembers.",
)
@shared_options
def send(
    options: Options,
    queue: str,
    messages: tuple[str, ...],
    files: bool,
    lines: bool,
    quiet: bool,
    delay: float | None,
    at: datetime | None,
    priority: int | None,
    key: str | None,
    visibility: int | None,
    headers: tuple[tuple[str, str], ...],
    content_type: str | None,
    idempotency_key: str | None,
) -> None:
    """Publish to QUEUE, and print the id of each message once it is on stable media.

    Each MESSAGE is one; without any, all of stdin is one.
    """
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at: say one of them.")
    of_one = key is not None or idempotency_key is not None
    if of_one and (lines or len(messages) > 1):
        raise click.UsageError("--key and --idempotency-key are for one message.")
    said = Said(delay, at, priority, visibility, headers_of(headers), content_type)
    if lines:
        if messages or files:
            raise click.UsageError("--lines reads stdin: say no MESSAGE with it.")
        _invite(options)
        run(
            options,
            lambda client, printer: SendingLines(
                client.queue(queue), said, printer, options, quiet
            ).run(Descriptor(sys.stdin.buffer)),
        )
        return
    if files and not messages:
        raise click.UsageError("--files: say which.")
    if files and messages.count(_STDIN) > 1:
        raise click.UsageError("stdin can be read once.")
    sources = [_Source(each, None if files else each) for each in messages] or [_Source(_STDIN)]
    if any(each.text is None and each.name == _STDIN for each in sources):
        _invite(options)
    template = NewMessage(
        delay_s=delay,
        at=at,
        priority=priority,
        key=key,
        visibility_s=visibility,
        headers=said.headers,
        content_type=content_type,
        idempotency_key=idempotency_key,
    )

    async def work(client: AsyncClient, printer: Printer) -> None:
        await _Sending(client, queue, template, printer, options, quiet).run(sources)

    run(options, work)


def _invite(options: Options) -> None:
    if sys.stdin.isatty() and not options.as_json:
        click.echo("Reading from the terminal; Ctrl-D ends it.", err=True)


class _Sending:
    """Publishes one source after the other, each told of as it is done."""

    def __init__(
        self,
        client: AsyncClient,
        queue: str,
        template: NewMessage,
        printer: Printer,
        options: Options,
        quiet: bool,
    ) -> None:
        self._queue = client.queue(queue)
        self._template = template
        self._printer = printer
        self._options = options
        self._quiet = quiet

    async def run(self, sources: list[_Source]) -> None:
        """Raises Failed where not all are sent; what a client raises, for one alone."""
        if len(sources) == 1:
            message_id = await self._send(sources[0])
            self._tell(sources[0], message_id)
            return
        sent = 0
        for place, source in enumerate(sources):
            try:
                message_id = await self._send(source)
            except (ClientError, Failed) as error:
                self._tell_failed(source, error)
                if isinstance(error, QueueNotFound | Unanswered):
                    self._tell_rest(sources[place + 1 :])
                    if not sent:
                        raise
                    break
            else:
                sent += 1
                self._tell(source, message_id)
        if sent < len(sources):
            raise Failed(ExitCode.PARTLY if sent else ExitCode.REFUSED)

    async def _send(self, source: _Source) -> str:
        """Publishes one; its id. Raises Failed for a file that cannot be read."""
        if source.text is not None:
            return await self._publish(_said(source.text), self._template.content_type)
        with ExitStack() as opened:
            try:
                body = await _body(_open(source, opened))
            except OSError as error:
                raise self._unreadable(source, error) from None
            try:
                return await self._publish(body, self._template.content_type or _type_of(source))
            except OSError as error:
                if isinstance(error, ClientError):
                    raise
                raise self._unreadable(source, error) from None

    async def _publish(self, body: Any, content_type: str | None) -> str:
        said = self._template
        return await self._queue.publish(
            body,
            delay_s=said.delay_s,
            at=said.at,
            priority=said.priority,
            key=said.key,
            visibility_s=said.visibility_s,
            headers=said.headers,
            content_type=content_type,
            idempotency_key=said.idempotency_key,
        )

    def _unreadable(self, source: _Source, error: OSError) -> Failed:
        name = "stdin" if source.name == _STDIN else source.name
        why = error.strerror or str(error)
        return Failed(ExitCode.REFUSED, f"{name}: {why}", as_json=self._options.as_json)

    def _tell(self, source: _Source, message_id: str) -> None:
        if self._printer.as_json:
            of = {} if source.text is not None or source.name == _STDIN else {"file": source.name}
            self._printer.row({"id": message_id, **of})
        elif not self._quiet:
            self._printer.line(message_id)
            self._printer.flush()

    def _tell_failed(self, source: _Source, error: ClientError | Failed) -> None:
        if self._printer.as_json:
            problem = (
                {"detail": error.message} if isinstance(error, Failed) else problem_said(error)
            )
            self._printer.row(
                {"file" if source.text is None else "text": source.name, "problem": problem}
            )
        else:
            why = error.message if isinstance(error, Failed) else problem_text(error)
            self._printer.note(why if isinstance(error, Failed) else f"{source.name}: {why}")

    def _tell_rest(self, sources: list[_Source]) -> None:
        if sources and not self._printer.as_json:
            self._printer.note(f"{len(sources)} more were not tried.")


def _said(text: str) -> str | bytes:
    """An argument as a body: the bytes that were said, and text where they are UTF-8."""
    body = os.fsencode(text)
    try:
        return body.decode()
    except UnicodeDecodeError:
        return body


def _open(source: _Source, opened: ExitStack) -> "IO[bytes]":
    if source.name == _STDIN:
        return sys.stdin.buffer
    return opened.enter_context(Path(source.name).open("rb"))


async def _body(file: "IO[bytes]") -> Any:
    """A body that can be sent again where that is possible: what is short is held."""
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    pieces = Pieces(Descriptor(file))
    held = b""
    while len(held) <= BODY_HELD_BYTES_MAX:
        piece = await pieces.next()
        if not piece:
            return held
        held += piece
    return _chained(held, pieces)


async def _chained(held: bytes, pieces: Pieces) -> AsyncIterator[bytes]:
    yield held
    async for piece in pieces:
        yield piece


def _type_of(source: _Source) -> str | None:
    """What a file's name says of its type, where that has an extension in an id."""
    return EXTENSIONS.get(Path(source.name).suffix.removeprefix(".").lower())
