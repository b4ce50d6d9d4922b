"""`/-/consume`: a WebSocket whose client takes messages of many queues, as fast as it gives credit.

What both sides say, and what a connection may have, is in `mq.protocol.consume`.

wire      frames as bytes, also those of a body that is not held
sending   what goes out, at the pace at which the client reads
settling  acks, releases and sidelines: what the storage is asked for
permission what its client may consume
connection one connection: commands in, messages out, its end
"""
