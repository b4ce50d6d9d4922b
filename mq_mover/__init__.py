"""mq-mover: what time does to messages."""
