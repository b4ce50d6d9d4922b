"""Figures, not tests: `python -m tests.bench` from the repository's top. RESULTS.md has some."""
