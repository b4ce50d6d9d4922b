"""Packs after their publish: taking one apart, and operations on its items.

A pack moves as a message does, by its own id. Its items have no files, until a request concerns
some of them only: then the pack is *parted*. All its items become files at one moment, by one
rename of the pack (`parting`). PROTOCOL.md, "part a pack", has the steps and what a crash after
each leaves.
"""
