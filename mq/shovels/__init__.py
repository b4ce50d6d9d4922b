"""Runs of shovels: passes over a queue's sideline that move its messages back.

Floor 2.
"""
