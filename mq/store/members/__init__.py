"""Files in which processes that share upkeep say what they do."""
