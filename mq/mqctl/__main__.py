"""`python -m mq.mqctl`."""

from mq.mqctl.cli import main

main()
