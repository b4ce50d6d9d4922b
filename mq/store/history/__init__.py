"""Histories: what happened to each message."""
