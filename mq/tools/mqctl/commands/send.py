"""`mqctl send`: publishes arguments, files, stdin, or the lines of stdin."""

import os
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Final

import click

from mq.client.client import AsyncClient
from mq.client.errors import ClientError, QueueNotFound, Unanswered
from mq.client.queue import AsyncQueue
from mq.model.limits import BODY_HELD_BYTES_MAX
from mq.model.names import EXTENSIONS
from mq.tools.mqctl.arguments import MOMENT, SECONDS, message_options, queue_argument
from mq.tools.mqctl.complaints import problem_said, problem_text
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options, shared_options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.reading import Descriptor, Pieces
from mq.tools.mqctl.running import run
from mq.tools.mqctl.sending_lines import SendingLines

_STDIN: Final = "-"


@dataclass(frozen=True, slots=True)
class _Source:
    """The source of a body: an argument, a file, or stdin."""

    name: str
    text: str | None = None


@click.command()
@queue_argument
@click.argument("messages", nargs=-1, metavar="[MESSAGE]...")
@click.option(
    "--files",
    "-f",
    is_flag=True,
    help="Take each MESSAGE as the name of a file to send; - is stdin.",
)
@click.option("--lines", "-l", is_flag=True, help="Send each line of stdin as a message.")
@click.option(
    "--rows", is_flag=True, help="Send each line of stdin, a JSON object, as it says itself."
)
@click.option("--pack", is_flag=True, help="With --lines or --rows: messages share files.")
@click.option("--quiet", "-q", is_flag=True, help="Do not print ids.")
@click.option("--delay", "delay_s", type=SECONDS, help="Make it ready after this time.")
@click.option("--at", type=MOMENT, help="Make it ready at this time (RFC 3339).")
@message_options
@click.option(
    "--idempotency-key",
    help="Publish once: a repeat with the same key changes nothing while the queue remembers it.",
)
@shared_options
def send(
    options: Options,
    queue: str,
    messages: tuple[str, ...],
    files: bool,
    lines: bool,
    rows: bool,
    pack: bool,
    quiet: bool,
    **attributes: Any,
) -> None:
    """Publish to QUEUE, and print the id of each message once it is on stable media.

    Each MESSAGE argument is one message. Without arguments, stdin is one message.
    """
    if attributes["delay_s"] is not None and attributes["at"] is not None:
        raise click.UsageError("Give --delay or --at, not both.")
    of_one = [attributes[name] for name in ("key", "idempotency_key")]
    if of_one != [None, None] and (lines or len(messages) > 1):
        raise click.UsageError("--key and --idempotency-key require a single message.")
    if lines or rows:
        if messages or files or (lines and rows):
            name = "--lines" if lines else "--rows"
            raise click.UsageError(f"{name} reads stdin. Leave out MESSAGE and other sources.")
        _send_lines(options, queue, {**attributes, "pack": pack}, as_rows=rows, quiet=quiet)
        return
    if pack:
        raise click.UsageError("--pack requires --lines or --rows.")
    if files and not messages:
        raise click.UsageError("--files requires the names of files.")
    if files and messages.count(_STDIN) > 1:
        raise click.UsageError("Stdin can be read only once. Give - once.")
    sources = [_Source(each, None if files else each) for each in messages] or [_Source(_STDIN)]
    if any(each.text is None and each.name == _STDIN for each in sources):
        _invite(options)

    async def work(client: AsyncClient, printer: Printer) -> None:
        where = client.queue(queue)
        await _Sending(where, attributes, printer, options, quiet).run(sources)

    run(options, work)


def _send_lines(
    options: Options, queue: str, attributes: dict[str, Any], *, as_rows: bool, quiet: bool
) -> None:
    pack = attributes.pop("pack")
    if as_rows and any(value not in (None, (), {}) for value in attributes.values()):
        raise click.UsageError("With --rows each row says its own: leave out other options.")
    del attributes["key"], attributes["idempotency_key"]
    _invite(options)

    async def work(client: AsyncClient, printer: Printer) -> None:
        to = client.queue(queue)
        send = to.publish_rows if as_rows else partial(to.publish_lines, **attributes)
        publish = partial(send, pack=pack)
        await SendingLines(publish, printer, options, quiet).run(Descriptor(sys.stdin.buffer))

    run(options, work)


def _invite(options: Options) -> None:
    if sys.stdin.isatty() and not options.as_json:
        click.echo("Reading from the terminal; Ctrl-D ends it.", err=True)


class _Sending:
    """Publishes one source after the other, and prints each result."""

    def __init__(
        self,
        queue: AsyncQueue,
        attributes: Mapping[str, Any],
        printer: Printer,
        options: Options,
        quiet: bool,
    ) -> None:
        self._queue = queue
        self._attributes = attributes
        self._printer = printer
        self._options = options
        self._quiet = quiet

    async def run(self, sources: list[_Source]) -> None:
        """Raises Failed unless all are sent; ClientError for a single message."""
        if len(sources) == 1:
            message_id = await self._send(sources[0])
            self._print(sources[0], message_id)
            return
        sent = 0
        for place, source in enumerate(sources):
            try:
                message_id = await self._send(source)
            except (ClientError, Failed) as error:
                self._print_failure(source, error)
                if isinstance(error, QueueNotFound | Unanswered):
                    self._print_rest(sources[place + 1 :])
                    if not sent:
                        raise
                    break
            else:
                sent += 1
                self._print(source, message_id)
        if sent < len(sources):
            raise Failed(ExitCode.PARTLY if sent else ExitCode.REFUSED)

    async def _send(self, source: _Source) -> str:
        """Publishes one and returns its id. Raises Failed for an unreadable file."""
        if source.text is not None:
            return await self._queue.publish(_said(source.text), **self._attributes)
        with ExitStack() as opened:
            try:
                body = await _body(_open(source, opened))
            except OSError as error:
                raise self._unreadable(source, error) from None
            kind = {"content_type": self._attributes["content_type"] or _type_of(source)}
            try:
                return await self._queue.publish(body, **{**self._attributes, **kind})
            except OSError as error:
                if isinstance(error, ClientError):
                    raise
                raise self._unreadable(source, error) from None

    def _unreadable(self, source: _Source, error: OSError) -> Failed:
        name = "stdin" if source.name == _STDIN else source.name
        why = error.strerror or str(error)
        return Failed(ExitCode.REFUSED, f"{name}: {why}", as_json=self._options.as_json)

    def _print(self, source: _Source, message_id: str) -> None:
        if self._printer.as_json:
            of = {} if source.text is not None or source.name == _STDIN else {"file": source.name}
            self._printer.row({"id": message_id, **of})
        elif not self._quiet:
            self._printer.line(message_id)
            self._printer.flush()

    def _print_failure(self, source: _Source, error: ClientError | Failed) -> None:
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

    def _print_rest(self, sources: list[_Source]) -> None:
        if sources and not self._printer.as_json:
            self._printer.note(f"{len(sources)} more were not sent.")


def _said(text: str) -> str | bytes:
    """The bytes of an argument, as text where they are UTF-8."""
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
    """A file, or a short pipe read to its end, so that a request can be retried; else a stream."""
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
    """The Content-Type of a file's extension, if mq knows that one."""
    return EXTENSIONS.get(Path(source.name).suffix.removeprefix(".").lower())
