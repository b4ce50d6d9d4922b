"""Orderings that matter, each with the two steps in the wrong order, or one of them weakened.

Each is a piece of a module's text and what it becomes. A piece that is not in the module exactly
once is an error: whoever changes the code changes its mutants with it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from mutants.sites import Mutant


@dataclass(frozen=True)
class Ordering:
    """What goes wrong, where, and how."""

    wrong: str
    module: str
    text: str
    becomes: str


ORDERINGS = (
    Ordering(
        "a published file is flushed before it is written and stamped",
        "mq/store/publish.py",
        """\
        root.files.write(descriptor, body)
        stamp_due(root, descriptor, Stamp(draft.due_ms))
        yield Flush(files=(descriptor,))
""",
        """\
        yield Flush(files=(descriptor,))
        root.files.write(descriptor, body)
        stamp_due(root, descriptor, Stamp(draft.due_ms))
""",
    ),
    Ordering(
        "a published file is flushed before its mtime is set",
        "mq/store/publish.py",
        """\
        stamp_due(root, descriptor, Stamp(draft.due_ms))
        yield Flush(files=(descriptor,))
""",
        """\
        yield Flush(files=(descriptor,))
        stamp_due(root, descriptor, Stamp(draft.due_ms))
""",
    ),
    Ordering(
        "a streamed file's mtime is set after its fsync",
        "mq/store/publish.py",
        """\
    stamp_due(root, descriptor, Stamp(draft.due_ms))
    root.files.sync(descriptor)
""",
        """\
    root.files.sync(descriptor)
    stamp_due(root, descriptor, Stamp(draft.due_ms))
""",
    ),
    Ordering(
        "a published file is delivered before it is flushed",
        "mq/store/publish.py",
        """\
        yield Flush(files=(descriptor,))
    except BaseException:
        discard(root, draft)
        raise
    finally:
        root.files.close(descriptor)
    return (yield from deliver(root, draft, look_again))
""",
        """\
        delivered = yield from deliver(root, draft, look_again)
        yield Flush(files=(descriptor,))
    finally:
        root.files.close(descriptor)
    return delivered
""",
    ),
    Ordering(
        "a publish is answered before its folders are flushed",
        "mq/store/publish.py",
        """\
        flush = reveal(root, draft)
    except Exception:
""",
        """\
        reveal(root, draft)
        return draft.id
    except Exception:
""",
    ),
    Ordering(
        "a batch is delivered before it is flushed",
        "mq/store/batch.py",
        """\
        if work.staged:
            yield Flush(files=tuple(work.staged))
""",
        """\
        if work.staged:
            work.deliver()
            yield Flush(files=tuple(work.staged))
            work.deliver = lambda: Flush(folders=(root.layout.queue(queue), root.layout.new))
""",
    ),
    Ordering(
        "a claim is stamped after its flush",
        "mq/store/fetch.py",
        """\
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    try:
        yield flush._replace(files=(claim.descriptor,))
    except FileNotFoundError:
        return None  # The queue was deleted meanwhile.
""",
        """\
    try:
        yield flush._replace(files=(claim.descriptor,))
    except FileNotFoundError:
        return None
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
""",
    ),
    Ordering(
        "a postponed message is stamped before it leaves its queue",
        "mq/store/reschedule.py",
        """\
    flush = yield from move_alive(root, POSTPONE, queue, message_id, claim.status.st_nlink, bucket)
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
""",
        """\
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    flush = yield from move_alive(root, POSTPONE, queue, message_id, claim.status.st_nlink, bucket)
""",
    ),
    Ordering(
        "a postponed message is stamped after its flush",
        "mq/store/reschedule.py",
        """\
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    yield flush._replace(files=(claim.descriptor,))
    _record(root, Event.EXTENDED, queue, message_id, stamp)
    return stamp


def _release(
""",
        """\
    yield flush._replace(files=(claim.descriptor,))
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    _record(root, Event.EXTENDED, queue, message_id, stamp)
    return stamp


def _release(
""",
    ),
    Ordering(
        "a released message leaves delay/ before it is stamped",
        "mq/store/reschedule.py",
        """\
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    flush = yield from move_alive(root, RELEASE, queue, message_id, claim.status.st_nlink, bucket)
""",
        """\
    flush = yield from move_alive(root, RELEASE, queue, message_id, claim.status.st_nlink, bucket)
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
""",
    ),
    Ordering(
        "a message is published for later before its queue is flushed",
        "mq/store/publish.py",
        "    yield Flush(entries=(root.layout.queue(draft.queue),))\n",
        "    yield Flush()\n",
    ),
    Ordering(
        "a sideline's mark of a purge is looked at before what says of it is flushed",
        "mq/store/sideline.py",
        """\
    yield Flush(folders=(root.layout.purged,), entries=(root.layout.queue(into),))
    if is_purged(root, queue, message_id):
        raise Busy("the message is purged")
    if is_purged(root, into, message_id):
        raise SidelinePurged(into.text)
""",
        """\
    if is_purged(root, queue, message_id):
        raise Busy("the message is purged")
    if is_purged(root, into, message_id):
        raise SidelinePurged(into.text)
    yield Flush(folders=(root.layout.purged,), entries=(root.layout.queue(into),))
""",
    ),
    Ordering(
        "a sideline's mark of a purge takes what comes later",
        "mq/store/sideline.py",
        "    if is_purged(root, into, message_id):\n",
        "    if False:\n",
    ),
    Ordering(
        "a message is stamped before it is sidelined",
        "mq/store/sideline.py",
        """\
    try:
        flush = yield from move_alive(root, transition, queue, message_id, links, bucket, into=into)
        stamp = Stamp(root.now_ms(), claim.stamp.receives, reason)
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
""",
        """\
    try:
        stamp = Stamp(root.now_ms(), claim.stamp.receives, reason)
        root.files.stamp(claim.descriptor, stamp.mtime_ns())
        flush = yield from move_alive(root, transition, queue, message_id, links, bucket, into=into)
""",
    ),
    Ordering(
        "a sidelined message's lock ends before it is flushed",
        "mq/store/sideline.py",
        "        yield flush._replace(files=(claim.descriptor,))\n",
        "        root.files.unlock(claim.descriptor)\n"
        "        yield flush._replace(files=(claim.descriptor,))\n",
    ),
    Ordering(
        "a sidelined message's key is free before its move is flushed",
        "mq/store/sideline.py",
        "        root.files.stamp(claim.descriptor, stamp.mtime_ns())\n",
        "        root.files.stamp(claim.descriptor, stamp.mtime_ns())\n"
        "        free_key(root, queue, message_id)\n",
    ),
    Ordering(
        "of two names a sideline's stays",
        "mq/store/moves.py",
        "    for of, state in itertools.product((queue, *others_of_it), _ALL):\n",
        "    for of, state in itertools.product((queue,), _ALL):\n",
    ),
    Ordering(
        "of two names that of a removed one's sideline stays",
        "mq/store/remove.py",
        "        if status.st_nlink > 1 and not _keep_removed(root, queue, message_id, bucket):\n",
        "        if False:\n",
    ),
    Ordering(
        "what is moved on from a sideline comes back to its queue",
        "mq/store/moves.py",
        "    is_one = queue.is_sideline or root.files.is_there(",
        "    is_one = not queue.is_sideline and root.files.is_there(",
    ),
    Ordering(
        "what is moved on from a queue comes back to its sideline",
        "mq/store/moves.py",
        "    is_one = queue.is_sideline or root.files.is_there(",
        "    is_one = queue.is_sideline and root.files.is_there(",
    ),
    Ordering(
        "what is moved on comes back to a queue that a shovel took it from",
        "mq/store/moves.py",
        "    if others := root.places.crossings.of(queue):\n        return others\n    is_one",
        "    is_one",
    ),
    Ordering(
        "of two names that of the queue that a shovel took it from stays",
        "mq/store/moves.py",
        "    return root.places.crossings.of(queue) or (queue.counterpart(),)\n",
        "    return (queue.counterpart(),)\n",
    ),
    Ordering(
        "queues are joined by one run alone",
        "mq/store/crossings.py",
        "            together |= joined.get(queue, set())\n",
        "            pass\n",
    ),
    Ordering(
        "a run is forgotten before what it left is flushed",
        "mq/store/crossing_files.py",
        "    for queue in (crossing.target, crossing.source):\n",
        "    unlink_if_there(root.files, chosen_path(root.layout, crossing))\n"
        "    for queue in (crossing.target, crossing.source):\n",
    ),
    Ordering(
        "another delivery than the one that was chosen is moved",
        "mq/store/shovel.py",
        "    if not aim.is_as_chosen(message_id, status):\n",
        "    if False:\n",
    ),
    Ordering(
        "a message is stamped before it is taken back from a sideline",
        "mq/store/shovel.py",
        """\
        flush = yield from _move(root, aim, message_id, source, claim)
        if isinstance(flush, Why):
            return flush
        stamp = Stamp(root.now_ms(), claim.stamp.receives, _reason(aim, claim))
        _stamp(root, claim, stamp)
""",
        """\
        stamp = Stamp(root.now_ms(), claim.stamp.receives, _reason(aim, claim))
        _stamp(root, claim, stamp)
        flush = yield from _move(root, aim, message_id, source, claim)
        if isinstance(flush, Why):
            return flush
""",
    ),
    Ordering(
        "the lock of a message that is taken back ends before it is flushed",
        "mq/store/shovel.py",
        "            yield flush._replace(files=(claim.descriptor,))\n",
        "            root.files.unlock(claim.descriptor)\n"
        "            yield flush._replace(files=(claim.descriptor,))\n",
    ),
    Ordering(
        "a message that is taken back shows without its key",
        "mq/store/shovel.py",
        "        yield from take_key(root, queue, message_id, key)\n",
        "        go, place = go, root.layout.link(Keys.LOOKUP, queue, key)\n        return go()\n",
    ),
    Ordering(
        "a message is taken back though its link says another by then",
        "mq/store/shovel.py",
        "        return go() if root.files.linked(place.path) == message_id.text else None\n",
        "        return go()\n",
    ),
    Ordering(
        "a message is taken back without a look whether it was purged meanwhile",
        "mq/store/shovel.py",
        "    if (why := _why_not_now(root, aim, message_id)) is not None:\n",
        "    if (why := _why_not_now(root, aim, message_id)) is not None and False:\n",
    ),
    Ordering(
        "a key's link is taken over though its message lives by then",
        "mq/store/keyed.py",
        "(lives(root, queue, holder) or across(root, queue, holder) != seen)",
        "False",
    ),
    Ordering(
        "a key's link is taken over though its message came and went meanwhile",
        "mq/store/keyed.py",
        "(lives(root, queue, holder) or across(root, queue, holder) != seen)",
        "lives(root, queue, holder)",
    ),
    Ordering(
        "a released message is stamped after its flush",
        "mq/store/reschedule.py",
        """\
    root.files.unlock(claim.descriptor)
    yield flush._replace(files=(claim.descriptor,))
    _record(root, Event.RELEASED, queue, message_id, stamp)
    return stamp
""",
        """\
    root.files.unlock(claim.descriptor)
    root.files.stamp(claim.descriptor, claim.stamp.mtime_ns())
    yield flush._replace(files=(claim.descriptor,))
    root.files.stamp(claim.descriptor, stamp.mtime_ns())
    _record(root, Event.RELEASED, queue, message_id, stamp)
    return stamp
""",
    ),
    Ordering(
        "a queue's folder goes before its tombstone stands",
        "mq/store/queues.py",
        """\
        descriptor = root.files.open_kept(root.layout.tombstone(queue))
        try:
            root.files.write(descriptor, uuid.encode("ascii"))
            root.files.stamp(descriptor, Stamp(root.now_ms()).mtime_ns())
            yield Flush(files=(descriptor,), folders=(root.layout.tombstones,))
        finally:
            root.files.close(descriptor)
        _move_folder(root, queue, uuid)
        # What came from its sideline, or, to a sideline, from its queue, by one who died before its
        # own flush, goes with it, and does not come back there.
        others = (root.layout.queue(other) for other in others_of(root, queue))
        beside = tuple(row for folder in others for row in rows_of(root.files, folder))
        yield Flush(folders=(root.layout.remove, root.layout.queues), beside=beside)
        _forget(root, queue)
""",
        """\
        _move_folder(root, queue, uuid)
        # What came from its sideline, or, to a sideline, from its queue, by one who died before its
        # own flush, goes with it, and does not come back there.
        others = (root.layout.queue(other) for other in others_of(root, queue))
        beside = tuple(row for folder in others for row in rows_of(root.files, folder))
        yield Flush(folders=(root.layout.remove, root.layout.queues), beside=beside)
        descriptor = root.files.open_kept(root.layout.tombstone(queue))
        try:
            root.files.write(descriptor, uuid.encode("ascii"))
            root.files.stamp(descriptor, Stamp(root.now_ms()).mtime_ns())
            yield Flush(files=(descriptor,), folders=(root.layout.tombstones,))
        finally:
            root.files.close(descriptor)
        _forget(root, queue)
""",
    ),
    Ordering(
        "a deletion is answered before its folder says so on a network mount",
        "mq/store/queues.py",
        """\
        if root.over_network:
            yield from mark_deleted(root, queue, uuid)
""",
        "",
    ),
    Ordering(
        "a queue is made again before the deleted one's folder says so on a network mount",
        "mq/store/queues.py",
        """\
    yield from _mark_buried(root, queue)
    for _ in""",
        "    for _ in",
    ),
    Ordering(
        "a deleted queue is made again before its last messages are gone",
        "mq/store/queues.py",
        """\
                yield from _bury(root, queue)
                yield from move_keys(root, queue, UuidSource(root.clock).next())
                yield from forget_mark(root, queue)
                yield from write_shape(root.layout, root.files, queue, wanted.shape())
                _make_folder(root, queue)
""",
        """\
                _make_folder(root, queue)
                yield from _bury(root, queue)
                yield from move_keys(root, queue, UuidSource(root.clock).next())
                yield from forget_mark(root, queue)
                yield from write_shape(root.layout, root.files, queue, wanted.shape())
""",
    ),
    Ordering(
        "a queue is made before its settings are written",
        "mq/store/queues.py",
        """\
                yield from write_shape(root.layout, root.files, queue, wanted.shape())
                _make_folder(root, queue)
""",
        """\
                _make_folder(root, queue)
                yield from write_shape(root.layout, root.files, queue, wanted.shape())
""",
    ),
    Ordering(
        "a queue made anew has the settings that the old one left",
        "mq/store/settings.py",
        """\
        yield from forget_settings(layout, files, queue)
""",
        "        return\n",
    ),
    Ordering(
        "settings, or a purge's mark, are renamed before they are flushed",
        "mq/store/replacing.py",
        """\
        yield Flush(files=(descriptor,))
        made = files.descriptor_status(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            files.unlink(written)
        raise
    finally:
        files.close(descriptor)
    _rename(files, written, path, made)
""",
        """\
        made = files.descriptor_status(descriptor)
        _rename(files, written, path, made)
        yield Flush(files=(descriptor,))
    finally:
        files.close(descriptor)
""",
    ),
    Ordering(
        "settings, or a purge's mark, are answered before their folder is flushed",
        "mq/store/replacing.py",
        "    yield Flush(folders=(os.path.dirname(path),))\n",
        "",
    ),
    Ordering(
        "a deleted queue's mark goes before its folder does",
        "mq/store/queues.py",
        """\
        _move_folder(root, queue, uuid)
        # What came from its sideline, or, to a sideline, from its queue, by one who died before its
        # own flush, goes with it, and does not come back there.
        others = (root.layout.queue(other) for other in others_of(root, queue))
        beside = tuple(row for folder in others for row in rows_of(root.files, folder))
        yield Flush(folders=(root.layout.remove, root.layout.queues), beside=beside)
        _forget(root, queue)
        if root.over_network:
            yield from mark_deleted(root, queue, uuid)
        yield from forget_schedules(root, queue)
        yield from move_keys(root, queue, uuid)
        yield from forget_mark(root, queue)
""",
        """\
        yield from forget_mark(root, queue)
        _move_folder(root, queue, uuid)
        # What came from its sideline, or, to a sideline, from its queue, by one who died before its
        # own flush, goes with it, and does not come back there.
        others = (root.layout.queue(other) for other in others_of(root, queue))
        beside = tuple(row for folder in others for row in rows_of(root.files, folder))
        yield Flush(folders=(root.layout.remove, root.layout.queues), beside=beside)
        _forget(root, queue)
        if root.over_network:
            yield from mark_deleted(root, queue, uuid)
        yield from forget_schedules(root, queue)
        yield from move_keys(root, queue, uuid)
""",
    ),
    Ordering(
        "a purge's mark goes before what was moved is flushed",
        "mq/store/purge.py",
        """\
        yield Flush(folders=(layout.remove, layout.delay, ready), beside=tuple(rows))
        yield from forget_mark(root, queue)
""",
        "        yield from forget_mark(root, queue)\n",
    ),
    Ordering(
        "a claim does not look whether the message was purged",
        "mq/store/fetch.py",
        "    return is_purged(root, queue, message_id) or ",
        "    return ",
    ),
    Ordering(
        "a claim does not look whether the message has expired",
        "mq/store/fetch.py",
        " or message_expired(root, queue, message_id)\n",
        "\n",
    ),
    Ordering(
        "a mover brings expired messages back",
        "mq/store/redeliver.py",
        "    expired = message_expired(root, queue, message_id)\n",
        "    expired = False\n",
    ),
    Ordering(
        "what was listed as expired is not looked at again under its lock",
        "mq/store/expire.py",
        "        if not message_expired(root, queue, message_id):\n",
        "        if False:\n",
    ),
    Ordering(
        "a bucket goes by settings that are known, not by those of the queues' lock",
        "mq/store/expire.py",
        "            settings = Configured.read(root, queue).settings\n",
        "            settings = root.settings.of(queue)\n",
    ),
    Ordering(
        "an expired queue is deleted without a look under the lock",
        "mq/store/queues.py",
        "        if is_to_go is not None and not is_to_go():\n",
        "        if False:\n",
    ),
    Ordering(
        "a mover brings purged messages back",
        "mq/store/redeliver.py",
        "        if is_purged(root, queue, message_id):\n",
        "        if False:\n",
    ),
    Ordering(
        "what was received often enough comes back",
        "mq/store/redeliver.py",
        "    if not expired and not is_at_its_limit(root, queue, claim.stamp.receives):\n",
        "    if not expired:\n",
    ),
    Ordering(
        "a release brings back what was received often enough",
        "mq/store/reschedule.py",
        "        if is_at_its_limit(root, delivery.queue, now.receives):\n",
        "        if False:\n",
    ),
    Ordering(
        "a release of many brings back what was received often enough",
        "mq/store/giving_back.py",
        "    if not is_at_its_limit(root, delivery.queue, delivery.stamp.receives):\n",
        "    if True:\n",
    ),
    Ordering(
        "an id is made again for a time that was purged",
        "mq/broker/purger.py",
        "        before_ms = self._uuids.end_moment()\n",
        "        before_ms = self._root.now_ms()\n",
    ),
    Ordering(
        "a not-found does not flush the mark that it relies on",
        "mq/store/purged.py",
        "        yield Flush(folders=(root.layout.purged,))\n        raise",
        "        raise",
    ),
    Ordering(
        "a queue made anew inherits the purge of the one before",
        "mq/store/queues.py",
        """\
                yield from forget_mark(root, queue)
                yield from write_shape(root.layout, root.files, queue, wanted.shape())
""",
        """\
                yield from write_shape(root.layout, root.files, queue, wanted.shape())
""",
    ),
    Ordering(
        "a message moves to a bucket that is not flushed",
        "mq/store/moves.py",
        "            yield _way_to(root, transition, into, target)\n",
        "",
    ),
    Ordering(
        "a bucket is made after the flush of what leads to it",
        "mq/store/moves.py",
        """\
            _make_bucket(root, transition, into, target)
            yield _way_to(root, transition, into, target)
""",
        """\
            yield _way_to(root, transition, into, target)
            _make_bucket(root, transition, into, target)
""",
    ),
    Ordering(
        "a bucket of long ago counts as flushed though it was made anew",
        "mq/store/moves.py",
        "    return bucket is not None and bucket.may_be_written(root.now_ms())\n",
        "    return bucket is not None\n",
    ),
    Ordering(
        "an empty bucket goes before what left it is flushed",
        "mq/store/buckets.py",
        "    yield Flush(folders=(layout.remove, layout.delay), beside=rows)\n",
        "    yield Flush()\n",
    ),
    Ordering(
        "of folders that lead to what was made only the last is flushed",
        "mq/store/flush.py",
        "            for entry in flush.entries\n",
        "            for entry in flush.entries[-1:]\n",
    ),
    Ordering(
        "a tombstone goes before the messages that it stands for",
        "mq/store/queues.py",
        """\
    yield from _mark_buried(root, queue)
    for _ in range(RETIRE_PASSES_MAX):
""",
        """\
    yield from _mark_buried(root, queue)
    unlink_if_there(root.files, root.layout.tombstone(queue))
    for _ in range(RETIRE_PASSES_MAX):
""",
    ),
    Ordering(
        "folders are flushed before the files in them",
        "mq/store/flush.py",
        """\
        failed = self._sync_files(asked)
        return failed | self._folders.flush(asked)
""",
        """\
        failed = self._folders.flush(asked)
        return failed | self._sync_files(asked)
""",
    ),
    Ordering(
        "folders are flushed in any order",
        "mq/store/flush.py",
        "        ordered = _in_order(list(dict.fromkeys(sequences.values())))\n",
        "        ordered = _in_order(list(dict.fromkeys(sequences.values())))[::-1]\n",
    ),
    Ordering(
        "a rename's source is left out whatever the file system",
        "mq/store/flush.py",
        "        return self._whole_renames and flush.covered > 0\n",
        "        return flush.covered > 0\n",
    ),
    Ordering(
        "a syncfs that failed says all of what began before it ended",
        "mq/store/flush.py",
        "            self._failures += 1\n",
        "",
    ),
    Ordering(
        "a folder's entry is taken for flushed before it is",
        "mq/store/flush.py",
        "        return None if self._flushed.get(folder) == inode else inode\n",
        "        return None\n",
    ),
    Ordering(
        "a folder's entry counts as flushed though the folder was made anew",
        "mq/store/flush.py",
        "self._flushed.get(folder) == inode else inode\n",
        "folder in self._flushed else inode\n",
    ),
    Ordering(
        "a file's failed fsync is not told",
        "mq/store/flush.py",
        "            failed.append((index, descriptor, error))\n",
        "            pass\n",
    ),
    Ordering(
        "a file's failed fsync is tried again",
        "mq/store/flush.py",
        """\
        except OSError as error:
            failed.append((index, descriptor, error))
""",
        """\
        except OSError:
            files.sync(descriptor)
""",
    ),
    Ordering(
        "a folder's failed fsync is not told",
        "mq/store/flush.py",
        "            self._on_failure()\n            return error\n",
        "            self._on_failure()\n            return None\n",
    ),
    Ordering(
        "a failed syncfs is taken for a good one",
        "mq/store/flush.py",
        """\
            self._files.sync_file_system(self._descriptor)
        except OSError:
            self._failures += 1
            return self._flush_each(asked)
""",
        """\
            self._files.sync_file_system(self._descriptor)
        except OSError:
            return {}
""",
    ),
    Ordering(
        "the descriptor for syncfs is opened after the writes, and hears of no error",
        "mq/store/flush.py",
        "self._files.sync_file_system(self._descriptor)",
        "self._files.sync_file_system(self._files.open_folder(self._root))",
    ),
    Ordering(
        "a claim is made without the inode's lock",
        "mq/store/moves.py",
        "    if not root.files.lock(descriptor):\n        return None\n",
        "",
    ),
    Ordering(
        "a claim's lock ends before its stamp",
        "mq/store/fetch.py",
        "    due_ms = root.now_ms() + round(",
        "    root.files.unlock(claim.descriptor)\n    due_ms = root.now_ms() + round(",
    ),
    Ordering(
        "a lock is believed though the name has come to mean another file",
        "mq/store/moves.py",
        " or not os.path.samestat(status, root.files.descriptor_status(descriptor)):\n",
        ":\n",
    ),
    Ordering(
        "one name of two stays",
        "mq/store/moves.py",
        """\
        return keep_one_name(root, transition.target, into or queue, message_id, target)
""",
        "        pass\n",
    ),
    Ordering(
        "a key's link is made before its message's name in new/ is flushed",
        "mq/store/keyed.py",
        """\
    yield Flush(folders=(root.layout.folder(State.NEW),))
    try:
""",
        "    try:\n",
    ),
    Ordering(
        "a lookup key's link is made before the idempotency key's",
        "mq/store/keyed.py",
        """\
        if once is not None:
            first = yield from _take_once(root, queue, message_id, once)
            if first is not None:
                return first
        if message_id.key is not None:
            yield from take_key(root, queue, message_id, message_id.key)
""",
        """\
        if message_id.key is not None:
            yield from take_key(root, queue, message_id, message_id.key)
        if once is not None:
            first = yield from _take_once(root, queue, message_id, once)
            if first is not None:
                return first
""",
    ),
    Ordering(
        "a message shows before its links are made",
        "mq/store/publish.py",
        """\
        if draft.is_linked:
            first = yield from take_links(root, draft.queue, draft.id, draft.once)
""",
        """\
        if draft.is_linked:
            yield reveal(root, draft)
            first = yield from take_links(root, draft.queue, draft.id, draft.once)
""",
    ),
    Ordering(
        "a staged file goes before its idempotency key",
        "mq/store/publish.py",
        """\
    if (yield from give_back(root, draft.queue, draft.id, draft.once)):
        discard(root, draft)
""",
        """\
    discard(root, draft)
    if (yield from give_back(root, draft.queue, draft.id, draft.once)):
""",
    ),
    Ordering(
        "a key is given to another before its message's removal is flushed",
        "mq/store/keyed.py",
        """\
            yield kept_flush(root, queue, holder)
        take_over = partial""",
        "        take_over = partial",
    ),
    Ordering(
        "whoever met a key flushes where its message came from before where it is",
        "mq/store/holders.py",
        "    here, other = (ready, delay) if state is State.READY else (delay, ready)\n",
        "    here, other = delay, ready\n",
    ),
    Ordering(
        "a reaper frees a key before its message's removal is flushed",
        "mq/store/reap.py",
        """\
                self._files.sync_folder(folder)
""",
        "                pass\n",
    ),
    Ordering(
        "a queue made anew has the keys that the old one left",
        "mq/store/queues.py",
        "                yield from move_keys(root, queue, UuidSource(root.clock).next())\n",
        "",
    ),
    Ordering(
        "what is forgotten goes from new/ while its idempotency key stands",
        "mq_mover/policies/forgotten.py",
        "        kept = run_alone(give_up_publishes(self.root, staged), self.work.flusher)\n",
        "        kept: frozenset[tuple[QueueName, MessageId]] = frozenset()\n",
    ),
    Ordering(
        "a bulk publish is committed though its name is taken",
        "mq/store/journal.py",
        """\
            if is_published(root, name):
                was_before""",
        """\
            if name.text == "":
                was_before""",
    ),
    Ordering(
        "a bulk publish's message shows though its key's link is another's",
        "mq/store/rolling.py",
        """\
            if root.files.linked(place.path) != message_id.text:
                return None
""",
        "",
    ),
    Ordering(
        "a journal ends while what it published is still staged",
        "mq/store/roll_forward.py",
        "if any(any(staged_entries(root, journal.job, each)) for each in journal.attempts):",
        "if not journal.attempts and rolled.left:",
    ),
    Ordering(
        "what a rename of a fold's message does not find is taken away",
        "mq/store/folds.py",
        """\
                if is_gone(error):
                    continue  # What is there all the same is for the next try.
                raise
""",
        """\
                if not is_gone(error):
                    raise
""",
    ),
    Ordering(
        "a fold goes whole though some of it was purged",
        "mq/store/folds.py",
        "mark is None or mark.ms < fold.first_ms]",
        "mark is None or mark.ms > 0]",
    ),
    Ordering(
        "a fold goes whole to a queue of another shape",
        "mq/store/folds.py",
        "    if not found or root.places.shape(queue) != DEFAULT_SHAPE:\n",
        "    if not found:\n",
    ),
    Ordering(
        "what another has moved of a bulk publish is not flushed",
        "mq/store/rolling.py",
        "        if was_tried:\n",
        "        if was_tried and not entries:\n",
    ),
    Ordering(
        "a firing's message shows though its schedule has gone on",
        "mq/store/publish.py",
        "        look_again()\n",
        "",
    ),
    Ordering(
        "a firing's link goes while its schedule is due still",
        "mq/store/orphans.py",
        "        return has_gone_on(root, folder.queue, place)\n",
        "        return True\n",
    ),
    Ordering(
        "what is next takes the place of a schedule that was changed meanwhile",
        "mq/store/firing.py",
        """\
    if not is_still(root, firing.queue, firing.name, firing.version):
        return False
    if""",
        "    if",
    ),
    Ordering(
        "what is next is written before the message is published",
        "mq/store/firing.py",
        """\
    draft = _draft(root, uuids, queue, schedule, key)
""",
        """\
    draft = _draft(root, uuids, queue, schedule, key)
    yield from rearm(root, [Firing(queue, name, kept.version, due_ms, draft.id)])
""",
    ),
    Ordering(
        "a schedule is put in a queue that is gone",
        "mq/store/schedules.py",
        """\
    if not queue_exists(root, queue):
        raise QueueNotFound(queue.text)
    if version_now""",
        "    if version_now",
    ),
    Ordering(
        "a queue made anew has the schedules that the old one left",
        "mq/store/queues.py",
        """\
                yield from forget_schedules(root, queue)
                yield from _bury""",
        "                yield from _bury",
    ),
    Ordering(
        "what is forgotten goes from new/ while its firing's link stands",
        "mq/store/orphans.py",
        "_ONCE: Final = (Keys.IDEMPOTENCY, Keys.FIRING)\n",
        "_ONCE: Final = (Keys.IDEMPOTENCY,)\n",
    ),
    Ordering(
        "of two names the earlier one goes before the later one is flushed",
        "mq/store/putting_right.py",
        """\
    yield Flush(folders=(os.path.dirname(os.path.dirname(kept)), os.path.dirname(kept)))
    there, here = root.files.status(kept), root.files.status(gone)
    if there is None or not os.path.samestat(there, claim.status):
        return None
    if here is None or not os.path.samestat(here, claim.status):
        return None
    root.files.unlink(gone)
""",
        """\
    root.files.unlink(gone)
    yield Flush(folders=(os.path.dirname(os.path.dirname(kept)), os.path.dirname(kept)))
""",
    ),
    Ordering(
        "of two names the earlier one goes though the later one has gone meanwhile",
        "mq/store/putting_right.py",
        "    if there is None or not os.path.samestat(there, claim.status):\n",
        "    if False:\n",
    ),
    Ordering(
        "of two names the earlier one goes though it is another file by then",
        "mq/store/putting_right.py",
        "    if here is None or not os.path.samestat(here, claim.status):\n",
        "    if False:\n",
    ),
    Ordering(
        "what is set aside is not looked at again under its lock",
        "mq/store/putting_aside.py",
        "        if status is None or not is_wrong(status):\n            return None\n",
        "        if status is None:\n            return None\n",
    ),
    Ordering(
        "a message is put where another file has its name",
        "mq/store/putting_right.py",
        "        if any(root.files.status(each.path(root.layout)) is not None for each in others):"
        "\n",
        "        if False:\n",
    ),
    Ordering(
        "a queue that was deleted is made again by fsck",
        "mq/store/putting_right.py",
        "        if root.files.status(root.layout.tombstone(queue)) is not None:\n",
        "        if False:\n",
    ),
)


def reordered(checkout: Path) -> Iterator[Mutant]:
    """The mutants of `ORDERINGS`."""
    for ordering in ORDERINGS:
        source = (checkout / ordering.module).read_text()
        found = source.count(ordering.text)
        assert found == 1, f"{ordering.module} has the text {found} times: {ordering.text}"
        changed = source.replace(ordering.text, ordering.becomes)
        yield Mutant(f"{ordering.module}: {ordering.wrong}", ordering.module, changed)
