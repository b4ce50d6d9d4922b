"""mq-mover: the daemon for everything that becomes due."""
