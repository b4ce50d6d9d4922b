"""Getting bytes and renames onto stable media: the calls, the steps, the flushes."""
