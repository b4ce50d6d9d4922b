"""The daemons' counters and their form for Prometheus.

Only this package uses `prometheus_client`, and only during a scrape: counting on a message's way
goes into plain numbers.
"""
