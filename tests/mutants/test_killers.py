"""Who is asked first."""

from mutants.killers import Killers
from mutants.syntax import Mutant

TESTS = ["tests/a/test_a.py::test_one", "tests/b/test_b.py::test_two", "tests/b/test_b.py::test_3"]
MUTANT = Mutant("mq/a.py f: no flush", "mq/a.py", "", "f")


def test_who_killed_it_comes_first_then_its_neighbours_of_the_function_and_of_the_module() -> None:
    killed_by = {
        "mq/a.py f: no flush": TESTS[0],
        "mq/a.py g: no flush": TESTS[2],
        "mq/a.py f: another": TESTS[1],
        "mq/b.py f: another": "tests/a/test_a.py::test_of_another_module",
    }
    asked = list(Killers(killed_by, TESTS).to_ask(MUTANT))
    assert asked == [[TESTS[0]], [TESTS[1], TESTS[2]]]


def test_a_test_whose_file_has_another_name_is_found_and_one_that_is_gone_passed_over() -> None:
    killed_by = {
        MUTANT.name: "tests/old/test_old.py::test_one",
        "mq/a.py f: another": "tests/a/test_a.py::test_that_is_gone",
    }
    killers = Killers(killed_by, TESTS)
    assert list(killers.to_ask(MUTANT)) == [[TESTS[0]]]
    assert killers.gone == {"tests/a/test_a.py::test_that_is_gone": "mq/a.py f: another"}


def test_of_two_tests_of_one_name_in_two_files_each_is_itself() -> None:
    tests = ["tests/a/test_a.py::test_one", "tests/b/test_b.py::test_one"]
    for killer in tests:
        assert list(Killers({MUTANT.name: killer}, tests).to_ask(MUTANT)) == [[killer]]
