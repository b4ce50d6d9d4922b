"""`/-/consume`: a WebSocket whose client takes messages of many queues within its credit.

`mq.protocol.consume` has what both sides say, and a connection's state and limits.

connection     one connection: commands in, messages out, its end
subscriptions  a consumer of each queue, and the messages that they claimed
sending        what goes out, at the pace at which the client reads
socket         the handshake, reading, writing, frames as bytes
"""
