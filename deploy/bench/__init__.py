"""Figures, not tests: `python -m deploy.bench` from the repository's top. README.md names all."""
