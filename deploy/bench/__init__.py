"""Figures, not tests: `python -m deploy.bench` from the repository's top. RESULTS.md has some."""
