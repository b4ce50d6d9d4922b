"""Every mutant is killed, and nothing but mutants."""

import pytest
from harness.tally import tally

from mutants.exemptions import EXEMPT, living
from mutants.gate import CHECKOUT, SUITE, all_mutants, judge, mutants, red_without_a_mutant
from mutants.killers import remembered


def all_names() -> frozenset[str]:
    return frozenset(mutant.name for mutant in all_mutants())


@pytest.mark.certificate
@pytest.mark.needs_root
@pytest.mark.usefixtures("needs_root")
@pytest.mark.timeout(1800)
def test_every_flush_and_every_ordering_is_missed_when_it_is_taken_out() -> None:
    chosen = mutants()
    assert len(chosen) >= 600
    # A search through all tests takes minutes a mutant. `python -m mutants --remember` makes it,
    # and keeps the killer that it finds.
    verdicts = list(judge(chosen, at_last=lambda _: (), needs_remembered=True))
    alive = [verdict.mutant for verdict in verdicts if not verdict.is_killed]
    tally("mutants made", len(verdicts))
    tally("mutants killed", len(verdicts) - len(alive))
    assert not alive, "\n".join(["python -m mutants --remember looks for killers:", *alive])
    assert not red_without_a_mutant(verdicts)


def test_every_mutant_of_the_package_is_one_of_its_own_and_compiles() -> None:
    made = all_mutants()
    assert len({mutant.source for mutant in made}) == len({mutant.name for mutant in made})
    for mutant in made:
        compile(mutant.source, mutant.module, "exec")


def test_what_is_exempt_is_a_mutant_and_has_a_reason() -> None:
    names = all_names()
    assert [name for name in EXEMPT if name not in names] == []
    assert all(EXEMPT.values())


def test_what_lives_is_a_mutant_that_is_not_exempt() -> None:
    names = all_names() - EXEMPT.keys()
    assert [name for name in living() if name not in names] == []


def test_the_mutants_of_some_modules_are_those_of_no_others() -> None:
    module = "mq/store/operations/publish.py"
    chosen = mutants(["deliver"], changed=[module])
    assert chosen
    assert {mutant.module for mutant in chosen} == {module}
    assert all("deliver" in mutant.name for mutant in chosen)


def test_who_is_remembered_is_a_test_and_has_killed_a_mutant() -> None:
    names = all_names()
    files: dict[str, str] = {}
    for name, test in remembered().items():
        assert name in names
        file, _, function = test.partition("[")[0].partition("::")
        assert file.startswith(SUITE), f"the suite has no {file}"
        text = files.setdefault(file, (CHECKOUT / file).read_text())
        assert f"def {function}(" in text, f"{file} has no {function}"
