"""The page at `/-/`, which people look at and act by: files, and their serving. See PAGE.md."""
