"""Things on disk that are broken or hostile: one breach, damage by chance, links and nodes."""
