"""A root that is damaged by chance, in several ways at once: fsck finds it, puts it right, finds
nothing more, and every acknowledged message is there, whole.
"""

import tempfile
from pathlib import Path
from random import Random

from harness.chance import examples
from harness.checking import checked
from harness.damage.by_chance import DAMAGES, Damage, Lived
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.tools.fsck.checking import Doing
from mq.tools.fsck.report import Outcome, Report


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.sampled_from(DAMAGES), min_size=1, max_size=7), st.integers(0, 2**32))
def test_what_chance_breaks_is_put_right_and_nothing_is_lost(
    damages: list[Damage], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        lived = Lived(Path(folder) / "root", Random(seed))
        assert_right(checked(lived.place.root), Outcome.CLEAN)
        done = [damage(lived) for damage in damages]
        if any(done):
            assert_right(checked(lived.place.root), Outcome.BROKEN)
        righted = checked(lived.place.root, Doing.REPAIR)
        assert righted.remaining.examples == []
        assert righted.outcome is (Outcome.PUT_RIGHT if any(done) else Outcome.CLEAN)
        assert_right(checked(lived.place.root), Outcome.CLEAN)
        there = [path.read_bytes() for path in lived.alive()]
        aside = lived.place.top / "lost"
        there += [path.read_bytes() for path in aside.rglob("*") if not path.is_symlink()]
        assert lived.bodies <= set(there)


def assert_right(report: Report, outcome: Outcome) -> None:
    assert report.outcome is outcome, report.remaining.examples
