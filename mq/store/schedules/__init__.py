"""Schedules on disk, and their firings."""
