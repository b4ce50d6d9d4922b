"""Names of all files of a root, and what they say. FORMAT.md describes them."""
