"""The mutation gate: every flush and every ordering that matters is taken out in turn, and each
time the tests must turn red.

    python -m mutants [WORD...]      from tests/; only mutants whose name has all these words
"""
