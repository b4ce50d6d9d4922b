"""`python -m mq.tools.mqctl`."""

from mq.tools.mqctl.cli import main

main()
