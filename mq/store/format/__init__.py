"""The names of all files of a root, and their contents. FORMAT.md describes them."""
