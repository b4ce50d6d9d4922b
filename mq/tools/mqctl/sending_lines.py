"""Publishing the lines of a stream: in their order, in bounded memory, and saying of each line, at
whatever end, whether it is sent.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from mq.client.errors import ClientError, Problem, Unanswered
from mq.client.queue.queue import AsyncQueue
from mq.client.values import Published
from mq.model.limits import BATCH_BYTES_MAX, MIB, SPLIT_LINES_MAX
from mq.tools.mqctl.complaints import problem_said, problem_text
from mq.tools.mqctl.exits import ExitCode, Failed
from mq.tools.mqctl.lines import LINE_FEED, Lines
from mq.tools.mqctl.options import Options
from mq.tools.mqctl.printing import Printer
from mq.tools.mqctl.reading import Pieces, Source

BATCH_LINES: Final = min(1000, SPLIT_LINES_MAX)
BATCH_BYTES: Final = MIB
# A batch is at most one that is nearly full, and the lines of one piece or a line of this size.
LINE_BYTES_MAX: Final = BATCH_BYTES_MAX - 2 * BATCH_BYTES


@dataclass(frozen=True, slots=True)
class Said:
    """What is said of every line."""

    delay_s: float | None = None
    at: datetime | None = None
    priority: int | None = None
    visibility_s: int | None = None
    headers: Mapping[str, str] | None = None
    content_type: str | None = None


class SendingLines:
    """Reads lines and publishes them, a request for as many as are there: one at a time where they
    come slowly, many where they come fast. Durable, line by line, once its id is printed.
    """

    def __init__(
        self, queue: AsyncQueue, said: Said, printer: Printer, options: Options, quiet: bool
    ) -> None:
        self._queue = queue
        self._said = said
        self._printer = printer
        self._options = options
        self._quiet = quiet
        self._batch: list[tuple[int, bytes]] = []
        self._batch_bytes = 0
        self._sent = 0
        self._refused = 0
        self._in_hand: list[tuple[int, bytes]] = []

    async def run(self, source: Source) -> None:
        """Sends all. Raises Failed where not all are sent; what it is, and which lines, is told.
        Raises what a client raises where nothing was done.
        """
        try:
            why = await self._read(source)
        except ClientError as error:
            if _was_refused(error) and not self._sent and not self._refused:
                raise
            raise self._ended(_why(error), error) from error
        except asyncio.CancelledError:
            self._tell_end()
            raise
        if why is not None:
            raise self._ended(why)
        if self._refused:
            raise self._ended("")

    async def _read(self, source: Source) -> str | None:
        """Reads to the end, and sends what is read; why it ended sooner than the input."""
        pieces = Pieces(source)
        lines = Lines(LINE_BYTES_MAX)
        while True:
            try:
                piece = await pieces.next()
            except OSError as error:
                # What was read before is whole, and is sent.
                await self._flush()
                return f"stdin: {error.strerror or error}, behind line {lines.number}" + (
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
        """Publishes the batch. Raises ClientError; then `in_hand` says of which nobody knows."""
        if not self._batch:
            return
        self._in_hand, self._batch, self._batch_bytes = self._batch, [], 0
        said = self._said
        found = await self._queue.publish_lines(
            LINE_FEED.join(line for _, line in self._in_hand),
            delay_s=said.delay_s,
            at=said.at,
            priority=said.priority,
            visibility_s=said.visibility_s,
            headers=said.headers,
            content_type=said.content_type,
        )
        done, self._in_hand = self._in_hand, []
        for (number, _), published in zip(done, found, strict=False):
            self._tell(number, published)
        self._printer.flush()
        if len(found) != len(done):
            raise Unanswered(f"{len(done)} lines were answered by {len(found)} rows")

    def _tell(self, number: int, published: Published) -> None:
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
        if self._in_hand:
            facts |= {"first_unsent": self._in_hand[0][0], "last_unsent": self._in_hand[-1][0]}
        if self._sent:
            code = ExitCode.PARTLY
        elif isinstance(error, Unanswered):
            code = ExitCode.UNREACHABLE
        else:
            code = ExitCode.REFUSED
        message = f"{why}. {text}" if why else text
        return Failed(code, message, facts, as_json=self._options.as_json)

    def _tell_end(self) -> None:
        self._printer.note(f"Interrupted. {self._summary(True)}")

    def _summary(self, may_be_there: bool) -> str:
        """Which lines are sent, in words."""
        parts = [f"{self._sent} lines are sent"]
        if self._refused:
            parts.append(f"{self._refused} were refused")
        if self._in_hand:
            first, last = self._in_hand[0][0], self._in_hand[-1][0]
            which = f"line {first}" if first == last else f"lines {first} to {last}"
            parts.append(
                f"of {which} nobody knows: they may be there"
                if may_be_there
                else f"{which} are not sent"
            )
            parts.append("what follows is not sent")
        elif self._batch:
            parts.append(f"from line {self._batch[0][0]} on nothing is")
        return "; ".join(parts) + "."


def _was_refused(error: ClientError) -> bool:
    """Whether surely nothing of a request was done."""
    if isinstance(error, Unanswered):
        return not error.was_sent
    return isinstance(error, Problem) and not error.retryable


def _why(error: ClientError) -> str:
    return problem_text(error).removesuffix(".")
