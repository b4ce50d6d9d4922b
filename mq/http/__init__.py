"""The HTTP interface. HTTP.md, beside this file, is its contract."""
