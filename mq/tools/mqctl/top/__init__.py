"""`mqctl top`: a live view of the queues for eyes, over HTTP.

What is known of the queues (`board`), what is asked next (`rotation`), what a key does (`view`) and
what is drawn (`picture`, `document`) are decided in pure code; `asking` asks mq, `terminal` holds
the terminal, `watching` joins them.
"""
