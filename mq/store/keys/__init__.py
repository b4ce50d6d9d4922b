"""Lookup keys and idempotency keys: links beside the messages."""
