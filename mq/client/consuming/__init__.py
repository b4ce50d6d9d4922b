"""Consumers: messages of queues as they become ready, over a WebSocket or by long polls."""
