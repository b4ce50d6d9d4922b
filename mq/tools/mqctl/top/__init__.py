"""`mqctl top`: a live view of the queues, over HTTP.

The state (`board`, `rates`), the effect of a key (`view`) and the output (`rows`, `picture`) are
pure; `asking` sends the requests, `terminal` draws, `watching` joins them.
"""
