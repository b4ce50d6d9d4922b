"""mq beside other queues, in the same run: `python -m tests.bench.others`."""
