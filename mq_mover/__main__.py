"""`python -m mq_mover`."""

from mq_mover.cli import main

main()
