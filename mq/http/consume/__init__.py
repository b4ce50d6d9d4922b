"""`/-/consume`: a WebSocket whose client takes messages of many queues, as fast as it gives credit.

frames    what both sides say, parsed and printed; pure
session   what a connection holds, may have and gets next; pure
wire      frames as bytes, also those of a body that is not held
sending   what goes out, at the pace at which the client reads
settling  acks, releases and sidelines: what the storage is asked for
connection one connection: commands in, messages out, its end
"""
