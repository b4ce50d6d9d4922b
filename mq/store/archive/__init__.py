"""The removed messages that an archive has stored, and those that it has not."""
