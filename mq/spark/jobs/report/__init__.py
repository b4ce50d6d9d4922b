"""The report of a history: its tables as one HTML page with charts, which loads nothing else."""
