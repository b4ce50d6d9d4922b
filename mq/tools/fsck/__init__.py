"""fsck: checks a root against FORMAT.md, and repairs it where a program may.

`mq/store/audit/auditor.py` finds breaches; `mq/store/audit/repair.py` has the repairs. This package
decides which repair a breach gets, and when a breach counts.
"""
