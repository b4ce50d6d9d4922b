"""`/-/openapi.json`: the HTTP interface for machines, made from `mq.protocol.endpoints`."""
