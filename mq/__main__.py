"""`python -m mq`."""

from mq.cli import main

main()
