"""Leases: many messages that a consumer takes at a time."""
