"""Moves the messages of another queue into mq: deploy/MIGRATE.md."""
