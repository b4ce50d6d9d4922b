"""Totals of queues that outlive processes.

writing    a process's counts go to a file of its own
ledger     the totals of queues: folded, not folded, and not yet written
folding    many such files become one
"""
