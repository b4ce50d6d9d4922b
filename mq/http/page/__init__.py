"""The page at `/-/` in a browser: its files, and how they are served. See deploy/OBSERVE.md."""
