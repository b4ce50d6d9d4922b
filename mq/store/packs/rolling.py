"""Moves the items of parted packs to their places, and gives up tries that did not end.

After the commit the parting is a fact, so each step must be repeatable by any process after a crash
anywhere, and several may be at it. An item that is in the try's folder has not been moved; a
missing one has. The pack goes last. Nothing is flushed: an item counts, wherever it is by then.
"""

import contextlib
import operator
from collections.abc import Sequence

from mq.model.errors import Busy, MqError
from mq.model.lifecycle import DELIVER, FORGET, SCHEDULE, State, Transition
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.log import logger
from mq.model.names import MessageId, QueueName
from mq.store.core.moves import Move, make_buckets, message_status, move
from mq.store.core.packed import is_committed
from mq.store.core.root import Root, rmdir_if_empty, unlink_if_there
from mq.store.core.standing import queue_exists
from mq.store.core.unserved import mark_of
from mq.store.disk.files import is_gone
from mq.store.format.layout import parse_entry
from mq.store.format.packs import Try, tries, tries_of
from mq.store.format.walk import entries_if_there, named
from mq.store.operations.fetch import sources_of

_log = logger("mq.packs")


def roll_on(root: Root, queue: QueueName, pack: MessageId) -> bool:
    """Moves the items of the pack to their places, if it is parted and they are not there yet:
    a process may have died before. False: it is not parted, or all are there. Blocking. Raises
    Busy, OSError, Unavailable. Durable on return: no.
    """
    rolled = False
    for tried in tries_of(root.layout, root.files, queue, pack):
        rolled = _roll_found(root, tried) or rolled
    return rolled


def roll_all_on(root: Root) -> int:
    """Does so for all packs of the root. Returns how many; blocking. Logs failures; the next call
    tries again.
    """
    rolled = 0
    for tried in list(tries(root.layout, root.files)):
        try:
            rolled += _roll_found(root, tried)
        except (OSError, MqError) as error:
            fields = {"pack": tried.pack.text, "error": repr(error)}
            _log.warning("a parted pack is not rolled forward yet", extra={"fields": fields})
    return rolled


def sweep_packs(root: Root) -> int:
    """Rolls parted packs forward, and gives up tries that did not end. Returns how many; blocking.
    Raises OSError.
    """
    rolled = roll_all_on(root)
    if rolled:
        _log.info("parted packs were rolled forward", extra={"fields": {"count": rolled}})
    return rolled + sweep_tries(root)


def roll_ready_on(root: Root, queue: QueueName) -> bool:
    """Moves items of the queue's parted packs that are ready to their places. Whether there were
    some, or another process parts a ready pack just now. Blocking. Raises Busy, OSError,
    Unavailable. Durable on return: no.
    """
    is_any = False
    for tried in list(tries(root.layout, root.files)):
        if tried.queue != queue or tried.state is not State.READY:
            continue
        if _roll_found(root, tried):
            is_any = True
        elif not tried.is_given_up:
            of_pack = (
                root.layout.path(State.READY, queue, tried.pack, bucket)
                for bucket in sources_of(root, queue, tried.pack)
            )
            is_any = is_any or any(message_status(root, path) is not None for path in of_pack)
    return is_any


def is_any_parted(root: Root) -> bool:
    """Whether messages may be committed that are in no state yet. Raises OSError."""
    return any(True for _ in tries(root.layout, root.files))


def retire_parted(root: Root, deleted: frozenset[QueueName]) -> int:
    """Moves the items of parted packs of these deleted queues that are in no state yet to
    remove/. Returns their number. Durable on return: no.
    """
    met = 0
    for tried in list(tries(root.layout, root.files)):
        if tried.queue in deleted and is_committed(root, tried):
            met += len(_items_left(root, tried)) + 1
            _take_away(root, tried, _items_left(root, tried))
            _end(root, tried)
    return met


def sweep_tries(root: Root) -> int:
    """Gives up tries without a pack in which nothing happened for an hour: renames them, and an
    hour later removes them. Returns how many were removed. Blocking. Raises OSError. Durable on
    return: no; what a crash brings back is given up again.

    A process that was stopped before its commit may wake at any time. It then finds no folder of
    the name, and commits nothing; on a network mount it may still find the folder for a moment by
    its old name, so that is looked at once more.
    """
    layout, swept = root.layout, 0
    for tried in list(tries(layout, root.files)):
        status = root.files.status(tried.folder(layout))
        is_old = status is not None and root.has_aged(
            status.st_ctime_ns // 1_000_000, FORGOTTEN_AFTER_S
        )
        if not is_old or is_committed(root, tried):
            continue
        if tried.is_given_up:
            for item in _items_left(root, tried):
                unlink_if_there(root.files, tried.item_path(layout, item))
            swept += rmdir_if_empty(root.files, tried.folder(layout))
        else:
            with contextlib.suppress(FileNotFoundError):
                root.files.rename(tried.folder(layout), tried.given_up().folder(layout))
    return swept


def roll_try_on(root: Root, tried: Try, fresh: Sequence[MessageId] | None = None) -> bool:
    """Moves the items of a committed try to their places and ends it. `fresh`: all of them, for the
    process that committed; None: those that are there. False: its queue is missing and was not
    deleted, so they stay. Raises Busy, OSError, Unavailable. Durable on return: no.
    """
    queue = tried.queue
    ids = _items_left(root, tried) if fresh is None else fresh
    is_there, mark = queue_exists(root, queue), mark_of(root, queue)
    if not is_there and root.files.status(root.layout.tombstone(queue)) is None:
        return False
    if not is_there or (mark is not None and mark.covers(tried.pack.text)):
        _take_away(root, tried, ids)
        moved = False
    else:
        moved = _move(root, tried, ids)
    if (fresh is None or not moved) and _items_left(root, tried):
        raise Busy("items of a parted pack are not in their places yet")
    _end(root, tried)
    return True


def _roll_found(root: Root, tried: Try) -> bool:
    return is_committed(root, tried) and roll_try_on(root, tried)


def _move(root: Root, tried: Try, ids: Sequence[MessageId]) -> bool:
    """Moves items to their places. False: some were moved by another process, or their queue was
    deleted meanwhile. Durable on return: no.
    """
    layout, queue, transition = root.layout, tried.queue, _transition(tried)
    targets = root.places.targets(transition.target, queue, ids)
    make_buckets(root, transition, ((queue, each) for each in sorted(set(targets))))
    left = []
    source = layout.beginning(State.NEW, queue, tried.spot)
    for item, bucket in zip(ids, targets, strict=True):
        target = layout.beginning(transition.target, queue, bucket)
        try:
            root.files.rename(source + item.text, target + item.text)
        except OSError as error:
            if not is_gone(error):
                raise
            left.append(item)
    for item in left:
        # Its bucket is gone, or it was moved.
        if root.files.status(tried.item_path(layout, item)) is not None:
            with contextlib.suppress(FileNotFoundError):  # The queue was deleted meanwhile.
                move(root, Move(transition, queue, item, tried.spot))
    return not left


def _take_away(root: Root, tried: Try, ids: Sequence[MessageId]) -> None:
    """Moves items to remove/. Durable on return: no."""
    for item in ids:
        try:
            move(root, Move(FORGET, tried.queue, item, tried.spot))
        except OSError as error:
            if not is_gone(error):
                raise


def _end(root: Root, tried: Try) -> None:
    """Removes the rest of a try. A crash may bring it back, with nothing to move."""
    unlink_if_there(root.files, tried.pack_path(root.layout))
    rmdir_if_empty(root.files, tried.folder(root.layout))


def _transition(tried: Try) -> Transition:
    return DELIVER if tried.state is State.READY else SCHEDULE


def _items_left(root: Root, tried: Try) -> list[MessageId]:
    """The items that are in the try's folder, in their order."""
    found = named(entries_if_there(root.files, tried.folder(root.layout)), parse_entry)
    ids = [each for _, (queue, each) in found if queue == tried.queue and each.pack_size]
    return sorted(ids, key=operator.attrgetter("text"))
