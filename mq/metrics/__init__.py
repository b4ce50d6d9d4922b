"""What a daemon counts of what it does, and how that is shown to Prometheus.

`prometheus_client` is used here alone, and only when somebody scrapes: what is counted on
a message's way goes into plain numbers.
"""
