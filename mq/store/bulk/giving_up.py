"""Jobs of bulk publishes that were given up: an empty file has the place of such a job's folder, so
that a task that comes late finds no folder to stage in, and cannot make one.

FORMAT.md, "bulk publishes", has the steps. Nothing here is flushed: what a crash brings back is
never delivered, and is swept.
"""

import contextlib
import stat
import uuid
from typing import Final

from mq.model.bulk_limits import GIVING_UP_TRIES_MAX
from mq.model.errors import Busy
from mq.store.bulk.staged import remove_job
from mq.store.core.root import Root
from mq.store.disk.files import is_gone
from mq.store.format.pipeline import job_folder, staging

# What was being written when the folder was set aside may come there while it is emptied.
_EMPTYINGS_MAX: Final = 3


def is_given_up(root: Root, job: str) -> bool:
    """Whether nothing may be staged for the job any more. Raises OSError."""
    status = root.files.status(job_folder(root.layout, job))
    return status is not None and not stat.S_ISDIR(status.st_mode)


def set_aside(root: Root, job: str) -> str:
    """Takes the job's name from its folder, with all that lies in it: what its tasks write from now
    on fails, where they do not begin anew. The name, a job's of its own, that the folder has then,
    if it was there. Raises OSError. Durable on return: no.
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
    """Takes away what was set aside, and marks the job, whose tasks stage nothing from then on.

    Raises Busy when they begin anew again and again, OSError. Durable on return: no.
    """
    for _ in range(GIVING_UP_TRIES_MAX):
        # First: on a full disk the mark has room then.
        _empty(root, aside)
        if _marks(root, job):
            return
        aside = set_aside(root, job)
    raise Busy("the job that is given up is begun again and again")


def _empty(root: Root, aside: str) -> None:
    """What stays all the same, such as what NFS keeps for who has it open, is for the sweep."""
    for _ in range(_EMPTYINGS_MAX):
        remove_job(root, aside)
        if root.files.status(job_folder(root.layout, aside)) is None:
            return


def _marks(root: Root, job: str) -> bool:
    """Whether the mark stands; not where a task has made the job's folder meanwhile."""
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
