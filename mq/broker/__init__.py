"""What is decided in memory. Truth is the folder; everything here is a hint of it."""
