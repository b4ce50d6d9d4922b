"""mq beside other queues, in the same run: `python -m deploy.bench.others`."""
