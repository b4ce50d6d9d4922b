"""The wire as pure code: how requests are written, and how answers, rows and frames are read."""
