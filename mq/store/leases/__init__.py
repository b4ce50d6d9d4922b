"""Leases: many messages that a Spark consumer takes at a time."""
