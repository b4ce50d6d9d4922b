"""Whatever comes from the network, by the thousand."""

EXAMPLES_VARIABLE = "MQ_FUZZ_EXAMPLES"
"""How many examples each test takes, for a longer search than CI's: `python -m tests.fuzz`."""
