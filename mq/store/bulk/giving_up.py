"""Abandoned jobs of bulk publishes: an empty file takes the place of the job's folder, so that a
late task can neither find nor make a folder to stage in.

PROTOCOL.md, "bulk publishes", has the steps. Nothing is flushed: what a crash brings back is never
delivered, and is swept.
"""

import contextlib
import stat
import uuid
from typing import Final

from mq.model.errors import Busy
from mq.store.bulk.staged import remove_job
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.pipeline import job_folder, staging

# Retries when tasks of an abandoned job begin concurrently: each begins once.
GIVING_UP_TRIES_MAX: Final = 1000

# A write that was in progress when the folder was set aside may end there while it is emptied.
_EMPTYINGS_MAX: Final = 3


def is_given_up(root: Root, job: str) -> bool:
    """Whether the job was abandoned, so that nothing can be staged for it. Raises OSError."""
    status = root.files.status(job_folder(root.layout, job))
    return status is not None and not stat.S_ISDIR(status.st_mode)


def set_aside(root: Root, job: str) -> str:
    """Renames the job's folder to that of a new job, so that later writes of its tasks fail unless
    they begin anew. Returns the folder's new name, if it existed. Raises OSError. Durable on
    return: no.
    """
    aside = uuid.uuid4().hex
    if not is_given_up(root, job):
        try:
            root.files.rename(job_folder(root.layout, job), job_folder(root.layout, aside))
        except OSError as error:
            if not is_gone(error):
                raise
    return aside


def give_up(root: Root, job: str, aside: str) -> None:
    """Removes the set-aside folder, and marks the job as abandoned: its tasks stage nothing any
    more.

    Raises Busy if tasks begin anew again and again, OSError. Durable on return: no.
    """
    for _ in range(GIVING_UP_TRIES_MAX):
        # Empty it first: on a full disk that makes room for the mark.
        _empty(root, aside)
        if _marks(root, job):
            return
        aside = set_aside(root, job)
    raise Busy("the job that is given up is begun again and again")


def _empty(root: Root, aside: str) -> None:
    """Empties the folder. The sweep removes files that remain, such as open files that NFS
    keeps.
    """
    for _ in range(_EMPTYINGS_MAX):
        remove_job(root, aside)
        if root.files.status(job_folder(root.layout, aside)) is None:
            return


def _marks(root: Root, job: str) -> bool:
    """Whether the mark was made; not if a task has made the job's folder meanwhile."""
    files, top = root.files, staging(root.layout)
    files.refuse_links(top)
    if files.status(top) is None:
        with contextlib.suppress(FileExistsError):
            files.mkdir(top)
    try:
        descriptor = files.create(job_folder(root.layout, job))
    except FileExistsError:
        return is_given_up(root, job)
    files.close(descriptor)
    return True
