"""What a history without faults must be beside: in order, and with nothing overlooked."""

from bisect import bisect_left
from collections.abc import Iterator

from harness.breaches import Breach
from harness.history import Fetch, History, Publish


def overtaken(history: History) -> Iterator[Breach]:
    """First in, first out: of two messages, the second published after the first was
    acknowledged, the second is not delivered before the first is even asked for.
    """
    firsts = [pair for pair in _first_deliveries(history) if pair[1] is not None]
    by_answer = sorted(firsts, key=lambda pair: pair[1].ended_us if pair[1] else 0)
    answers_us = [fetch.ended_us for _, fetch in by_answer if fetch is not None]
    latest: list[Publish] = []  # Of those answered so far, the one that was published last.
    for publish, _ in by_answer:
        last = latest[-1] if latest else publish
        latest.append(max(publish, last, key=lambda each: each.began_us))
    for publish, fetch in firsts:
        if fetch is None:
            continue
        before = bisect_left(answers_us, fetch.began_us)
        if before and latest[before - 1].began_us > publish.ended_us:
            text = f"{latest[before - 1]} was delivered before {fetch}"
            yield Breach("overtaken", publish.id, text)


def overlooked(history: History) -> Iterator[Breach]:
    """No fetch is told that there is nothing while an acknowledged message waits that nobody has
    asked for yet. For runs without faults: a claim that a fault cut off is nobody's delivery.
    """
    waiting = sorted(_first_deliveries(history), key=lambda pair: pair[0].ended_us)
    acknowledged_us = [publish.ended_us for publish, _ in waiting]
    longest: list[tuple[float, Publish]] = []  # Until when the one that waits longest waits.
    for publish, fetch in waiting:
        until = (float("inf") if fetch is None else fetch.began_us, publish)
        longest.append(max([until, *longest[-1:]], key=lambda pair: pair[0]))
    for fetch in history.fetches:
        before = bisect_left(acknowledged_us, fetch.began_us)
        if fetch.status == 204 and before and longest[before - 1][0] > fetch.ended_us:
            publish = longest[before - 1][1]
            yield Breach("overlooked", publish.id, f"{fetch} in spite of {publish}")


def _first_deliveries(history: History) -> list[tuple[Publish, Fetch | None]]:
    """The acknowledged publishes, each with its first delivery."""
    return [
        (publish, min(history.deliveries.get(message_id, []), key=_receives, default=None))
        for message_id, publish in history.acknowledged.items()
    ]


def _receives(fetch: Fetch) -> int:
    return fetch.receives
