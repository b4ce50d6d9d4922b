"""`python -m mq`."""

from mq.daemon.cli import main

main()
