"""The doctor: tries what a root's file system does, and says what mq can promise on it.

Each probe is an act, which gives facts, and a verdict, which is made of facts alone.
"""
