"""Consuming: messages as they become ready, by a WebSocket or by long polls."""
