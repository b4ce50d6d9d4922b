"""Amazon SQS's protocol: a front of the broker for SQS clients."""
