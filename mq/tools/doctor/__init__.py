"""doctor: tests a root's file system, and reports what mq can promise on it.

Each probe is an act, which returns facts, and a verdict, which depends on the facts alone.
"""
