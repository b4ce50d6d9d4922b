"""The process `mq`: its command, its start and end, and its supervisor."""
