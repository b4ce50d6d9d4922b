"""`python -m mq.tools.fsck`: the command alone."""

from mq.tools.fsck.command import fsck

fsck(prog_name="mqctl fsck")
