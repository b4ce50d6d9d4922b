"""What is done with one queue, by what it concerns: publishing, fetching, messages, upkeep."""
