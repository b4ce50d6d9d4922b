"""The report files of processes that share upkeep."""
