"""Histories: the recorded events of messages."""
