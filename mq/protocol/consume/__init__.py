"""What the two sides of `/-/consume` say, and what a connection may have. Pure.

frames    commands and server frames, parsed and printed
session   a connection's state and limits
"""
