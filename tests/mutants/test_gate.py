"""Every mutant is killed, and nothing but mutants."""

import pytest
from harness.tally import tally

from mutants.gate import judge, mutants, red_without_a_mutant


@pytest.mark.certificate
@pytest.mark.needs_root
@pytest.mark.usefixtures("needs_root")
@pytest.mark.timeout(3000)
def test_every_flush_and_every_ordering_is_missed_when_it_is_taken_out() -> None:
    chosen = mutants()
    assert len(chosen) >= 60
    verdicts = list(judge(chosen))
    alive = [verdict.mutant for verdict in verdicts if not verdict.is_killed]
    tally("mutants made", len(verdicts))
    tally("mutants killed", len(verdicts) - len(alive))
    assert not alive, "\n".join(alive)
    assert not red_without_a_mutant(verdicts)
