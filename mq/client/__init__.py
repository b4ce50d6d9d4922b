"""Clients of mq's HTTP interface, for event loops and for threads. See CLIENT.md.

From the top: `sync`, the client for threads, is generated from `client`. That has a module a noun:
`queue` with `publishing`, `messages`, `schedules` and `shovel`; `message`; and consumers in
`consuming`. Each noun makes its requests and reads their answers by `wire`, from the declarations
in `mq.protocol.endpoints`. Only `sending` sends and retries; `transport` is the interface to the
network.
"""
