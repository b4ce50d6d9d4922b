"""mq-reaper: unlinking what was removed."""
