"""fsck: a root held against FORMAT.md, and put right where a program may.

What a sound root is, `mq/store/audit/auditor.py` knows; what a repair does,
`mq/store/audit/putting_right.py`. Here is which repair a breach has, and when it is believed.
"""
