"""Who does what of the upkeep that one member a queue does: shovels and sweeps."""
