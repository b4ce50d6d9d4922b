"""Clients of mq's HTTP interface, for event loops and for threads. See CLIENT.md.

Beside the server: of it they use nothing. Down from here: the client and its queues, its
messages and consumers; `sending`, the one place that sends and tries again; `calls`, each request
as a value; `wire`, how requests are written and answers read; and `transport`, the seam to the
network.
"""
