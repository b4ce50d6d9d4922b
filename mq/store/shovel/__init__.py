"""Shovels: moving messages of a sideline back, or between queues."""
