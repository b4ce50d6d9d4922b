"""Programs for operators: mqctl, doctor and fsck."""
