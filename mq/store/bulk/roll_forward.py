"""Rolls committed bulk publishes forward: after the commit point, moves their messages to their
places.

Any process may do so after a crash anywhere, under the journal's lock. PROTOCOL.md, "bulk
publishes", has the steps and what a crash after each leaves.
"""

from mq.model.errors import Busy, MqError, unavailable
from mq.model.lifecycle import FORGET
from mq.model.log import logger
from mq.model.names import Key, QueueName
from mq.store.bulk.folds import staged_folds, unfold
from mq.store.bulk.journal import Journal, journals, read_journal
from mq.store.bulk.rolling import Rolled, Roller
from mq.store.bulk.staged import remove_job, staged_entries, staged_names
from mq.store.core.moves import Move, claimed_path, move
from mq.store.core.root import Root, rename_once, unlink_if_there
from mq.store.disk.files import is_gone
from mq.store.format.layout import parse_entry
from mq.store.format.pipeline import Attempt, JournalFile, journal_path, staged_spot
from mq.store.format.walk import named

_log = logger("mq.publishes")


def roll_forward(root: Root, name: Key, *, wait: bool = False) -> Rolled | None:
    """Moves all staged messages of a committed publish to their places, and ends its journal.
    Blocking. None: there is nothing to do or, without `wait`, another process does it.

    Raises OSError, Unavailable: the next try continues. Durable on return: no, but the publish is.
    """
    path = journal_path(root.layout, name, JournalFile.JOURNAL)
    with claimed_path(root, path, wait=wait) as claim:
        journal = None if claim is None else read_journal(root, path)
        if journal is None:
            return None
        try:
            rolled = Roller(root, journal).run()
        except OSError as error:
            raise unavailable(error) from error
        if not rolled.left:
            remove_job(root, journal.job, frozenset(each.text for each in journal.attempts))
            if any(any(staged_entries(root, journal.job, each)) for each in journal.attempts):
                raise Busy("published messages are still staged")
            _end(root, name, journal)
        return rolled


def roll_all_forward(root: Root) -> int:
    """Rolls forward the publishes that no other process is rolling. Returns the number of moved
    messages. Blocking. Logs failures; the next call tries again.
    """
    moved = 0
    for name in journals(root):
        try:
            rolled = roll_forward(root, name)
        except (OSError, MqError) as error:
            fields = {"name": name.text, "error": repr(error)}
            _log.warning("a publish is not rolled forward yet", extra={"fields": fields})
            continue
        if rolled is None:
            continue
        moved += rolled.moved
        facts = {"name": name.text, **rolled._asdict()}
        if rolled.left:
            _log.warning(
                "a publish's queue is not there and was not deleted; its messages stay",
                extra={"fields": facts},
            )
        else:
            _log.info("a publish was rolled forward", extra={"fields": facts})
    return moved


def _end(root: Root, name: Key, journal: Journal) -> None:
    """Turns the journal into a ledger file, if the publish has an id, or deletes it."""
    layout = root.layout
    path = journal_path(layout, name, JournalFile.JOURNAL)
    if name.text == journal.job:
        unlink_if_there(root.files, path)
    else:
        done = journal_path(layout, name, JournalFile.DONE)
        rename_once(root.files, path, done)
        unlink_if_there(root.files, journal_path(layout, name, JournalFile.BEGUN))


def retire_staged(root: Root, deleted: frozenset[QueueName]) -> int:
    """Moves committed, still staged messages of these deleted queues to remove/. Returns their
    number. Durable on return: no.
    """
    met = 0
    for name in journals(root):
        journal = read_journal(root, journal_path(root.layout, name, JournalFile.JOURNAL))
        if journal is None or deleted.isdisjoint(journal.queues):
            continue
        for attempt in journal.attempts:
            met += _retire_attempt(root, journal.job, attempt, deleted)
    return met


def _retire_attempt(root: Root, job: str, attempt: Attempt, deleted: frozenset[QueueName]) -> int:
    for fold in staged_folds(root, job, attempt):
        if fold.queue in deleted:
            unfold(root, job, attempt, fold)
    met = 0
    for _, (queue, message_id) in named(staged_names(root, job, attempt), parse_entry):
        if queue not in deleted:
            continue
        met += 1
        try:
            spot = staged_spot(job, attempt)
            move(root, Move(FORGET, queue, message_id, spot))
        except OSError as error:
            if not is_gone(error):
                raise
    return met
