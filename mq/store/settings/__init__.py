"""Queues' settings on disk, and the queues that a process knows."""
