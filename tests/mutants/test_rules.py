"""What each rule makes of small functions."""

import ast
from collections.abc import Callable

import pytest

from mutants import weakened
from mutants.acts import Acts
from mutants.orders import Orders
from mutants.sites import flushes_left_out
from mutants.syntax import Rule, edited, functions
from mutants.weakened import Decisions

MODULE = "mq/store/operations/publish.py"


def made(rule: Callable[[Acts], Rule], source: str, module: str = MODULE) -> dict[str, str]:
    """The sources that a rule makes of one, by what is changed."""
    chosen = rule(Acts({module: ast.parse(source)}))
    found: dict[str, str] = {}
    for function in functions(module, source):
        for change in chosen(function):
            changed = edited(source, change.edits)
            compile(changed, module, "exec")
            found[change.what] = changed
    return found


def test_each_flush_each_part_and_each_order_is_one_mutant() -> None:
    source = """
def publish(files, fd) -> Steps[None]:
    yield Flush(files=(fd,), folders=("queue", "new"))
    yield later

def seal(files, fd) -> None:
    if files.sync(fd) is None:
        return
"""
    found = made(lambda acts: flushes_left_out, source)
    whole = "Flush(files=(fd,), folders=('queue', 'new'))"
    assert sorted(found) == sorted(
        [
            f"flush nothing for {whole}",
            f"flush no files of {whole}",
            f"flush no folders of {whole}",
            "flush not 'queue'",
            "flush not 'new'",
            "flush the folders the other way round",
            "flush nothing for later",
            "leave out files.sync(fd)",
        ]
    )
    assert "if None is None:" in found["leave out files.sync(fd)"]
    assert "folders=('new', 'queue', )" in found["flush the folders the other way round"]


def test_what_comes_next_goes_before_the_flush_with_what_it_needs() -> None:
    source = """
def remove(files, fd) -> Steps[None]:
    try:
        yield Flush(files=(fd,))
    finally:
        close(fd)
    path = place()
    if not path:
        return
    files.unlink(path)
"""
    found = made(lambda acts: Orders(acts).later, source)
    assert list(found) == ["files.unlink(path) before yield Flush(files=(fd,))"]
    [changed] = found.values()
    lines = [line.strip() for line in changed.splitlines()]
    at = lines.index("yield Flush(files=(fd,))")
    assert lines[at - 2 : at] == ["path = place()", "files.unlink(path)"]


def test_what_is_returned_is_done_before_the_flush_and_answered_behind_it() -> None:
    source = """
def publish(files, fd) -> Steps[int]:
    yield Flush(files=(fd,))
    return (yield from deliver(files))

def deliver(files) -> Steps[int]:
    files.rename("a", "b")
    yield Flush(folders=("b",))
    return 1
"""
    [changed] = made(lambda acts: Orders(acts).later, source).values()
    assert "    answer = (yield from deliver(files))\n    yield Flush(files=(fd,))\n" in changed
    assert "    return answer\n" in changed


def test_a_change_goes_before_a_loop_of_flushes() -> None:
    source = """
def bury(files) -> Steps[None]:
    for each in range(3):
        yield Flush(folders=("delay",))
    files.unlink("tombstone")
"""
    [what] = made(lambda acts: Orders(acts).later, source)
    assert what == "files.unlink('tombstone') before for each in range(3)"


def test_what_needs_what_the_flush_gives_stays_behind_it() -> None:
    source = """
def move(files) -> Steps[None]:
    path = yield from find()
    files.unlink(path)
"""
    assert made(lambda acts: Orders(acts).later, source) == {}


def test_the_last_change_goes_behind_the_flush_and_behind_the_next_one() -> None:
    source = """
def extend(root, fd) -> Steps[None]:
    stamped(root, fd)
    yield Flush(files=(fd,))
    yield Flush(folders=("delay",))

def stamped(root, fd) -> None:
    root.files.stamp(fd, 1)

def seal(files, fd) -> None:
    files.stamp(fd, 1)
    files.sync(fd)
"""
    found = made(lambda acts: Orders(acts).earlier, source)
    assert list(found) == [
        "stamped(root, fd) behind yield Flush(files=(fd,))",
        "stamped(root, fd) behind yield Flush(folders=('delay',))",
        "files.stamp(fd, 1) behind files.sync(fd)",
    ]
    assert (
        "files.sync(fd)\n    files.stamp(fd, 1)"
        in found["files.stamp(fd, 1) behind files.sync(fd)"]
    )


def test_a_flush_goes_behind_the_looks_that_follow_it() -> None:
    source = """
def assure(files) -> Steps[None]:
    yield Flush(folders=("queue",))
    if files.status("queue") is None:
        raise KeyError
    note()

def note():
    pass
"""
    found = made(lambda acts: Orders(acts).looks, source)
    [what] = found
    assert what == "yield Flush(folders=('queue',)) behind if files.status('queue') is None"
    assert 'raise KeyError\n    yield Flush(folders=("queue",))\n    note()' in found[what]


def test_an_error_of_a_flush_goes_no_further_and_of_a_sync_no_step_is_done() -> None:
    source = """
def deliver() -> Steps[None]:
    try:
        yield Flush()
    except KeyError:
        raise
    except OSError as error:
        note(error)
        raise

def sync(files, fd) -> None:
    try:
        files.sync(fd)
    except OSError as error:
        count()
        return error
"""
    assert list(made(lambda acts: weakened.swallowed, source)) == [
        "of except OSError: no raise",
        "of except OSError: no count()",
        "of except OSError: no return error",
    ]
    [again] = made(lambda acts: weakened.tried_again, source).values()
    assert "except OSError:\n        files.sync(fd)\n" in again


def test_locks_are_not_taken_or_end_too_early() -> None:
    source = """
def change(root, fd) -> Steps[None]:
    with queues_locked(root):
        if not root.files.lock(fd):
            return
        root.files.stamp(claim.descriptor, 1)
        root.files.unlock(claim.descriptor)

def wait(files, fd) -> None:
    files.wait_for_lock(fd)
"""
    assert sorted(made(lambda acts: weakened.unlocked, source)) == [
        "unlocked before root.files.stamp(claim.descriptor, 1)",
        "without files.wait_for_lock(fd)",
        "without queues_locked(root)",
        "without root.files.lock(fd)",
    ]


def test_the_seam_asks_for_less_and_follows_links() -> None:
    source = """
_FILE: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW

def status(path):
    return os.stat(path, follow_symlinks=False)
"""
    rule = "mq/store/disk/files.py"
    found = made(lambda acts: weakened.flags, source, rule)
    assert sorted(found) == [
        "_FILE without O_EXCL",
        "_FILE without O_NOFOLLOW",
        "symbolic links are followed",
    ]
    assert made(lambda acts: weakened.flags, source) == {}


def test_counts_of_names_and_identities_are_not_looked_at() -> None:
    source = """
def keep(files, status, other):
    if status.st_nlink > 1 and os.path.samestat(status, other):
        files.unlink("name")

def told(status):
    return status.st_nlink > 1
"""
    assert list(made(lambda acts: Decisions(acts).links, source)) == [
        "status.st_nlink > 1 is False",
        "os.path.samestat(status, other) is True",
    ]


def test_a_step_that_is_made_of_others_is_left_out() -> None:
    source = """
def create() -> Steps[None]:
    yield from bury()
    found = yield from look()
"""
    found = made(lambda acts: weakened.steps, source)
    assert list(found) == ["without yield from bury()"]
    assert "    pass\n    found" in found["without yield from bury()"]


DECIDES = """
def take(root) -> Steps[bool]:
    if exists(root) or late():
        return False
    yield Flush()
    return True

def exists(root) -> bool:
    return is_new() and root.files.status("queue") is not None

def other(root) -> bool:
    return is_new() and root.files.status("queue") is not None
"""


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (lambda acts: Decisions(acts).guards, ["if exists(root) or late(): is not so"]),
        (
            lambda acts: Decisions(acts).operands,
            ["exists(root) is False", "root.files.status('queue') is not None is True"],
        ),
    ],
)
def test_what_an_operation_looks_at_is_not_so(
    rule: Callable[[Acts], Rule], wanted: list[str]
) -> None:
    assert list(made(rule, DECIDES)) == wanted
