"""What every history must be of a queue that is made and deleted while it is used."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, zip_longest

from harness.history import Breach, Create, Drop, History, Rule


@dataclass(frozen=True, slots=True)
class _Span:
    """A time without a change of the queue, and whether it is there; None: nobody knows."""

    began_us: int
    ended_us: float
    exists: bool | None


def reborn(history: History) -> Iterator[Breach]:
    """What was there when a queue was deleted is not delivered afterwards, and not alive at the
    end, whatever queue of the same name there is.
    """
    drops = [drop for drop in history.drops if drop.is_acknowledged]
    for message_id in history.acknowledged.keys() | history.deliveries.keys():
        there_us = history.there_us(message_id)
        gone_us = [
            drop.ended_us for drop in drops if there_us is not None and there_us < drop.began_us
        ]
        if not gone_us:
            continue
        for fetch in history.deliveries.get(message_id, []):
            if fetch.began_us > gone_us[0]:
                yield Breach("reborn", message_id, f"{fetch} after its queue went {gone_us[0]}")
        if message_id in history.alive:
            yield Breach("reborn", message_id, f"alive, and its queue went {gone_us[0]}")


def haunted(history: History) -> Iterator[Breach]:
    """Nothing is published, fetched or deleted in a queue that is not there."""
    for span in _spans(history):
        if span.exists is not False:
            continue
        for each in (*history.publishes, *history.fetches, *history.deletes):
            inside = span.began_us < each.began_us and each.ended_us < span.ended_us
            if inside and each.status in (200, 201, 202, 204, 412):
                yield Breach("haunted", each.id, f"{each} without a queue")


def unmade(history: History) -> Iterator[Breach]:
    """A queue whose making was acknowledged is there until somebody asks for its deletion."""
    for span in _spans(history):
        if not span.exists:
            continue
        for each in (*history.publishes, *history.fetches):
            inside = span.began_us < each.began_us and each.ended_us < span.ended_us
            if inside and each.status == 404:
                yield Breach("unmade", each.id, f"{each} in a queue that is there")


def miscalled(history: History) -> Iterator[Breach]:
    """Who makes or deletes a queue hears whether it was there."""
    for before, group in pairwise(_groups(history)):
        existed = _exists_after(before)
        if len(group) > 1 or existed is None:
            continue
        (change,) = group
        wrong = {Create: (200, 201), Drop: (200, 404)}[type(change)][existed]
        if change.status == wrong:
            yield Breach("miscalled", None, f"{change}, and it was there: {existed}")


def _groups(history: History) -> list[list[Create | Drop]]:
    """The changes in their order; those that overlap are one that nobody can tell."""
    groups: list[list[Create | Drop]] = []
    for change in history.changes:
        if groups and change.began_us <= max(each.ended_us for each in groups[-1]):
            groups[-1].append(change)
        else:
            groups.append([change])
    return groups


def _spans(history: History) -> list[_Span]:
    """The times between the changes."""
    groups = _groups(history)
    return [
        _Span(
            max(each.ended_us for each in group),
            after[0].began_us if after else float("inf"),
            _exists_after(group),
        )
        for group, after in zip_longest(groups, groups[1:])
    ]


def _exists_after(group: list[Create | Drop]) -> bool | None:
    if all(isinstance(each, Create) and each.is_acknowledged for each in group):
        return True
    if all(isinstance(each, Drop) and each.status in (200, 404) for each in group):
        return False
    return None


QUEUES: tuple[Rule, ...] = (reborn, haunted, unmade, miscalled)
