"""An opened root, where its messages may be, and how one moves."""
