"""Publishes the lines of a stream in order and in bounded memory. However it ends, it reports which
lines are sent, refused or unknown.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from mq.client.errors import ClientError, Problem, Unanswered
from mq.client.sending import NOTHING_DONE
from mq.client.values import Published
from mq.model.limits import BATCH_BYTES_MAX, MIB, SPLIT_LINES_MAX
from mq.tools.mqctl.complaints import problem_said, problem_text
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.options import Options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.reading import LINE_FEED, Lines, Pieces, Source

BATCH_LINES: Final = min(1000, SPLIT_LINES_MAX)
BATCH_BYTES: Final = MIB
# A request holds a nearly full batch and one more line at most.
LINE_BYTES_MAX: Final = BATCH_BYTES_MAX - 2 * BATCH_BYTES


class SendingLines:
    """Publishes all lines that have arrived in one request: one line of a slow stream, many of a
    fast one. A line is durable once its id is printed. `publish` sends a request of lines.
    """

    def __init__(
        self,
        publish: Callable[[bytes], Awaitable[list[Published]]],
        printer: Printer,
        options: Options,
        quiet: bool,
    ) -> None:
        self._publish = publish
        self._printer = printer
        self._options = options
        self._quiet = quiet
        self._batch: list[tuple[int, bytes]] = []
        self._batch_bytes = 0
        self._sent = 0
        self._refused = 0
        self._in_flight: list[tuple[int, bytes]] = []

    async def run(self, source: Source) -> None:
        """Sends all. Raises Failed, which names the lines, unless all are sent; ClientError if none
        was.
        """
        try:
            why = await self._read(source)
        except ClientError as error:
            if _was_refused(error) and not self._sent and not self._refused:
                raise
            raise self._ended(_why(error), error) from error
        except asyncio.CancelledError:
            self._print_end()
            raise
        if why is not None:
            raise self._ended(why)
        if self._refused:
            raise self._ended("")

    async def _read(self, source: Source) -> str | None:
        """Reads and sends to the end of the input; the reason if it stops earlier."""
        pieces = Pieces(source)
        lines = Lines(LINE_BYTES_MAX)
        while True:
            try:
                piece = await pieces.next()
            except OSError as error:
                # The lines read before are complete.
                await self._flush()
                return f"stdin: {error.strerror or error}, after line {lines.number}" + (
                    f" and {lines.held_bytes} bytes of the next" if lines.held_bytes else ""
                )
            found, too_long = lines.take(piece) if piece else (lines.end(), None)
            for number, line in found:
                await self._add(number, line)
            if not piece or too_long is not None or pieces.is_waiting():
                await self._flush()
            if too_long is not None:
                return f"stdin: {too_long}"
            if not piece:
                return None

    async def _add(self, number: int, line: bytes) -> None:
        is_full = len(self._batch) == BATCH_LINES or self._batch_bytes >= BATCH_BYTES
        if self._batch and (is_full or self._batch_bytes + len(line) > LINE_BYTES_MAX):
            await self._flush()
        self._batch.append((number, line))
        self._batch_bytes += len(line) + 1

    async def _flush(self) -> None:
        """Publishes the batch. After a ClientError the fate of `_in_flight` is unknown."""
        if not self._batch:
            return
        self._in_flight, self._batch, self._batch_bytes = self._batch, [], 0
        lines = LINE_FEED.join(line for _, line in self._in_flight)
        found = await self._publish(lines)
        done, self._in_flight = self._in_flight, []
        for (number, _), published in zip(done, found, strict=False):
            self._print(number, published)
        self._printer.flush()
        if len(found) != len(done):
            raise Unanswered(f"{len(done)} lines were answered by {len(found)} rows")

    def _print(self, number: int, published: Published) -> None:
        if published.problem is None:
            self._sent += 1
            if self._printer.as_json:
                self._printer.row({"line": number, "id": published.id})
            elif not self._quiet:
                self._printer.line(published.id)
            return
        self._refused += 1
        if self._printer.as_json:
            self._printer.row({"line": number, "problem": problem_said(published.problem)})
        else:
            self._printer.note(f"line {number}: {problem_text(published.problem)}")

    def _ended(self, why: str, error: ClientError | None = None) -> Failed:
        text = self._summary(error is not None and not _was_refused(error))
        facts = {"sent": self._sent, "refused": self._refused}
        if self._in_flight:
            facts |= {"first_unsent": self._in_flight[0][0], "last_unsent": self._in_flight[-1][0]}
        if self._sent:
            code = ExitCode.PARTLY
        elif isinstance(error, Unanswered):
            code = ExitCode.UNREACHABLE
        else:
            code = ExitCode.REFUSED
        message = f"{why}. {text}" if why else text
        return Failed(code, message, facts, as_json=self._options.as_json)

    def _print_end(self) -> None:
        self._printer.note(f"Interrupted. {self._summary(True)}")

    def _summary(self, may_be_there: bool) -> str:
        """Which lines are sent, for people."""
        parts = [f"{self._sent} lines sent"]
        if self._refused:
            parts.append(f"{self._refused} refused")
        if self._in_flight:
            first, last = self._in_flight[0][0], self._in_flight[-1][0]
            which = f"line {first}" if first == last else f"lines {first} to {last}"
            parts.append(f"{which} may be sent" if may_be_there else f"{which} not sent")
            parts.append("later lines not sent")
        elif self._batch:
            parts.append(f"line {self._batch[0][0]} and later not sent")
        return "; ".join(parts) + "."


def _was_refused(error: ClientError) -> bool:
    """Whether mq certainly carried out nothing of the request."""
    if isinstance(error, Unanswered):
        return not error.was_sent
    return isinstance(error, Problem) and (not error.retryable or error.slug in NOTHING_DONE)


def _why(error: ClientError) -> str:
    return problem_text(error).removesuffix(".")
