"""Assigns a queue's shovels and sweeps to one member."""
