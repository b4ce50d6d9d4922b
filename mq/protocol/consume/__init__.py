"""What the two sides of `/-/consume` say, and what a connection may have. Pure.

frames    what both sides say, parsed and printed
session   what a connection holds, may have and gets next
errors    what is wrong with what a client asks for
limits    how much of all this there may be
"""
