"""mq: a durable HTTP message queue whose broker is a file system."""

__version__ = "0.1.0"
