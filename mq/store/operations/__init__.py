"""What is done with messages and queues: a module an operation."""
