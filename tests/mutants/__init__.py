"""The mutation gate: rules over the syntax tree take a flush out, put two steps in the wrong order,
or weaken what an operation decides, one place at a time, and each time the tests must turn red.

    python -m mutants [WORD...]             from tests/; those whose name has all these words
    python -m mutants --changed [BASE]      of the modules that differ from the branch
    python -m mutants --list [WORD...]      says which they are, and runs nothing
    python -m mutants --remember            who kills is asked first the next time
    python -m mutants --living --callers F  those that no test was known to kill; of tests that
                                            call what is changed, which F keeps

`rules.py` has the rules, `named.py` the few mutants that none makes, `exemptions.py` those that
need not be killed, `killers.txt` who killed each, `living.txt` those that want a test.
"""
