"""`mqctl bench`: publish, fetch and delete against an mq, measured.

What is to be done (`plan`), when each request's turn is (`pace`) and what came of it (`histogram`,
`tally`, `report`) are decided in pure code; `load` sends, `keeping` makes the queue and takes it
away again, `measuring` joins them.
"""
