"""The operations on messages and queues, one module each."""
