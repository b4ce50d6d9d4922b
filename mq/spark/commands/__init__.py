"""The jobs as commands: `mqctl pipeline ...`, and what spark-submit runs."""
