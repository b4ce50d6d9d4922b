"""Bulk publishes: staged, committed by a journal, rolled forward."""
