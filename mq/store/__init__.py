"""The disk. Names to paths, the calls that change files, and the durable operations.

FORMAT.md, beside this file, is the format, PROTOCOL.md what each operation does.
"""
