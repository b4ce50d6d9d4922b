"""Settings of queues on disk, and the queues that a process knows."""
