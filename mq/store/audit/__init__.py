"""Comparing a root with FORMAT.md, and repairing it."""
