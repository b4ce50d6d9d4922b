"""What an archive is to store of the removed messages, and what it has stored."""
