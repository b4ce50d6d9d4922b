"""mq-reaper: the daemon that unlinks removed messages."""
