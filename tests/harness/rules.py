"""What every history of a queue must be, one rule a function: pure, over records.

A rule yields a breach for each time that it does not hold. Where nobody knows what happened (an
operation that was never answered), a rule says nothing: each breach is mq's fault for sure, or the
recorder's.
"""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import pairwise

from harness.history import US_PER_MS, Breach, Fetch, History, Publish, Rule

# Beside success: a process that goes down answers 503; so does one that lost every race.
_EXPECTED = {
    "Publish": {201, 503},
    "Fetch": {200, 204, 503},
    "Delete": {202, 404, 412, 503},
    "Reschedule": {200, 404, 412, 503},
    "Create": {200, 201, 503},
    "Drop": {200, 404, 503},
}
_WITHOUT_A_QUEUE = {"Publish": {404}, "Fetch": {404}}


def check(history: History, rules: "tuple[Rule, ...] | None" = None) -> list[Breach]:
    """Every breach of the rules: of ALWAYS, unless told."""
    return [breach for rule in rules or ALWAYS for breach in rule(history)]


def lost(history: History) -> Iterator[Breach]:
    """An acknowledged message is delivered at least once, or alive at the end."""
    for message_id in history.acknowledged:
        there = message_id in history.deliveries or message_id in history.alive
        if not there and not history.may_be_gone(message_id):
            yield Breach("lost", message_id, "acknowledged, never delivered, not there")


def vanished(history: History) -> Iterator[Breach]:
    """What was acknowledged or delivered is alive until somebody asks for its delete."""
    for message_id in history.acknowledged.keys() | history.deliveries.keys():
        if not history.may_be_gone(message_id) and message_id not in history.alive:
            yield Breach("vanished", message_id, "nobody deleted it, and it is not there")


def torn(history: History) -> Iterator[Breach]:
    """A delivery has, byte for byte, a body that was published."""
    for fetch in history.fetches:
        if fetch.is_delivery and fetch.number is None:
            yield Breach("torn", fetch.id, "its body is nobody's")


def invented(history: History) -> Iterator[Breach]:
    """Each publish makes one message at most, under the id that it was told."""
    asked = {publish.number for publish in history.publishes}
    ids = {publish.number: message_id for message_id, publish in history.acknowledged.items()}
    for message_id, deliveries in history.deliveries.items():
        for fetch in deliveries:
            if fetch.number is None:
                continue
            if fetch.number not in asked:
                yield Breach("invented", message_id, f"nobody published {fetch.number}")
            elif (known := ids.setdefault(fetch.number, message_id)) != message_id:
                yield Breach("invented", message_id, f"{fetch.number} is {known} already")
        if len(numbers := {fetch.number for fetch in deliveries} - {None}) > 1:
            yield Breach("invented", message_id, f"one id, several bodies: {numbers}")
    if len(history.acknowledged) < sum(each.is_acknowledged for each in history.publishes):
        yield Breach("invented", None, "one id for two publishes")


def resurrected(history: History) -> Iterator[Breach]:
    """No fetch that began after a delete was acknowledged delivers the message."""
    for message_id, deliveries in history.deliveries.items():
        deleted_us = history.deleted_us(message_id)
        for fetch in deliveries:
            if deleted_us is not None and fetch.began_us > deleted_us:
                yield Breach("resurrected", message_id, f"{fetch} after {deleted_us}")
    for message_id in history.alive:
        if history.deleted_us(message_id) is not None:
            yield Breach("resurrected", message_id, "deleted, and alive at the end")


def shared(history: History) -> Iterator[Breach]:
    """No two clients hold a message at a time: each from its answer to its due time, or to the
    answer of a delete.
    """
    for message_id, deliveries in history.deliveries.items():
        deleted_us = history.deleted_us(message_id)
        held = []
        for fetch in deliveries:
            due_us = history.held_until_us(fetch)
            end_us = due_us if deleted_us is None else min(due_us, deleted_us)
            if fetch.ended_us < end_us:
                held.append((fetch.ended_us, end_us, fetch))
        held.sort(key=lambda each: each[:2])
        for (_, first_end_us, first), (second_us, _, second) in pairwise(held):
            if second_us < first_end_us:
                yield Breach("shared", message_id, f"{first} and {second}")


def claimed_early(history: History) -> Iterator[Breach]:
    """By mq's own times: a claim begins, its visibility before its due time, no sooner than the
    due time of the claim before it.
    """
    if history.visibility_us is None:
        return
    for message_id, deliveries in history.deliveries.items():
        for first, second in pairwise(sorted(deliveries, key=lambda fetch: fetch.due_us)):
            if second.due_us - history.visibility_us < history.held_until_us(first):
                yield Breach("claimed_early", message_id, f"{first} and {second}")


def hastened(history: History) -> Iterator[Breach]:
    """Who was told a later time has the message until then, unless somebody said another one."""
    for message_id, changes in history.reschedules_of.items():
        for change in changes:
            others = [
                each for each in changes
                if each is not change
                and history.may_have_acted(each)
                and each.ended_us > change.began_us
            ]  # fmt: skip
            if not change.is_acknowledged or others:
                continue
            for fetch in history.deliveries.get(message_id, []):
                held_us = change.due_us - history.clocks_apart_us
                if fetch.receives > change.receives and fetch.ended_us < held_us:
                    yield Breach("hastened", message_id, f"{fetch} in spite of {change}")


def recounted(history: History) -> Iterator[Breach]:
    """Receives rise strictly from delivery to delivery, and due times with them."""
    for message_id, counted in _counted(history).items():
        for first, second in pairwise(counted):
            if first.receives == second.receives:
                yield Breach("recounted", message_id, f"{first} and {second}")
            elif second.ended_us < first.began_us or second.due_us < first.due_us:
                yield Breach("recounted", message_id, f"{second} before {first}")
        if counted and counted[0].receives < 1:
            yield Breach("recounted", message_id, "delivered, and never received")


def overcounted(history: History) -> Iterator[Breach]:
    """Each receive is a delivery, or a claim that came to nothing: of a fetch that was not
    answered, or that took longer than the visibility.
    """
    if history.visibility_us is None:
        return
    wasted = sum(
        (each.status not in (200, 204)) + (each.ended_us - each.began_us) // history.visibility_us
        for each in history.fetches
    )
    receives = sum(each[-1].receives - len(each) for each in _counted(history).values())
    if receives > wasted:
        yield Breach("overcounted", None, f"{receives} receives without a delivery, {wasted} known")


def denied(history: History) -> Iterator[Breach]:
    """No delete, and no other due time, is told that a message is not there which is delivered
    afterwards, or is alive at the end.
    """
    for message_id in history.deletes_of.keys() | history.reschedules_of.keys():
        deletes = history.deletes_of.get(message_id, [])
        for asked in (*deletes, *history.reschedules_of.get(message_id, [])):
            if asked.status != 404:
                continue
            later = any(
                fetch.began_us > asked.ended_us for fetch in history.deliveries.get(message_id, [])
            )
            if later or message_id in history.alive:
                yield Breach("denied", message_id, f"alive after {asked}")


def overruled(history: History) -> Iterator[Breach]:
    """A delete for one delivery is refused once a later one was answered."""
    for message_id, deletes in history.deletes_of.items():
        for delete in deletes:
            if delete.receives is None or not delete.is_acknowledged:
                continue
            others = (each for each in (*deletes, *history.drops) if each is not delete)
            if any(each.may_have_removed and each.began_us < delete.ended_us for each in others):
                continue  # It was gone already, perhaps: nothing was overruled.
            for fetch in history.deliveries.get(message_id, []):
                if fetch.receives > delete.receives and fetch.ended_us < delete.began_us:
                    yield Breach("overruled", message_id, f"{delete} in spite of {fetch}")


def refused(history: History) -> Iterator[Breach]:
    """A delete for a delivery, or another due time, is not refused before that delivery is due
    again.
    """
    for message_id, deliveries in history.deliveries.items():
        due_us = {fetch.receives: history.held_until_us(fetch) for fetch in deliveries}
        deletes = history.deletes_of.get(message_id, [])
        for asked in (*deletes, *history.reschedules_of.get(message_id, [])):
            known_us = due_us.get(asked.receives, 0) if asked.receives is not None else 0
            if asked.status == 412 and asked.ended_us < known_us:
                yield Breach("refused", message_id, f"{asked} before {known_us}")


def stale(history: History) -> Iterator[Breach]:
    """A process that stood still in the middle of a claim until it was due hands nothing out."""
    for stall in history.stalls:
        for fetch in history.deliveries.get(stall.id, []):
            inside = fetch.began_us < stall.began_us and stall.ended_us < fetch.ended_us
            if inside and fetch.process == stall.process and fetch.due_us < stall.ended_us:
                yield Breach("stale", stall.id, f"{fetch} in spite of {stall}")


def unexpected(history: History) -> Iterator[Breach]:
    """Every answer is one that the request may have."""
    for operation in history.operations:
        kind = type(operation).__name__
        expected = _EXPECTED[kind] | (_WITHOUT_A_QUEUE.get(kind, set()) if history.drops else set())
        if operation.status is not None and operation.status not in expected:
            yield Breach("unexpected", operation.id, str(operation))


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


def _counted(history: History) -> dict[str, list[Fetch]]:
    """Every message's deliveries in the order of their receives."""
    return {
        message_id: sorted(deliveries, key=lambda fetch: fetch.receives)
        for message_id, deliveries in history.deliveries.items()
    }


ALWAYS: tuple[Rule, ...] = (
    lost, vanished, torn, invented, resurrected, shared, claimed_early, hastened, recounted,
    overcounted,
    denied, overruled, refused, stale, unexpected,
)  # fmt: skip
WITHOUT_FAULTS: tuple[Rule, ...] = (*ALWAYS, overtaken, overlooked)


def report(history: History, breaches: list[Breach], most: int = 5) -> str:
    """The first breaches, each with all that happened to its message, in milliseconds from the
    history's begin.
    """
    start_us = min((each.began_us for each in history.operations), default=0)
    lines = [f"{len(breaches)} breaches"]
    for breach in breaches[:most]:
        lines.append(f"{breach.rule} {breach.id}: {breach.text}")
        for each in history.about(breach.id) if breach.id is not None else []:
            span = f"{(each.began_us - start_us) / US_PER_MS:.1f}"
            span += f"..{(each.ended_us - start_us) / US_PER_MS:.1f} ms"
            lines.append(f"    {span} {each}")
    return "\n".join(lines)
