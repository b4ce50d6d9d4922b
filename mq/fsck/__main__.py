"""`python -m mq.fsck`: the command alone."""

from mq.fsck.command import fsck

fsck(prog_name="mqctl fsck")
