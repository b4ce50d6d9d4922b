"""`python -m mq_reaper`."""

from mq_reaper.cli import main

main()
