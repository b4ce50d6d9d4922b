"""Floor 3: the HTTP interface. HTTP.md, beside this file, is its contract."""
