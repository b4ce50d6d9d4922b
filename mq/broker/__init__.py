"""Decisions in memory. The folders are the truth; everything here is a hint of them."""
