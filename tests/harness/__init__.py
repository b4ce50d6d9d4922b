"""What the tests share: daemons started for real, and requests sent to them."""
