"""What the models say that a power cut may leave."""

import itertools
import random

import pytest
from crash.calls import TOP, Call, Link, Make, Remove, Rename, Stamp, Sync, Truncate, Write
from crash.changes import File, Tree
from crash.legal_states import Disk, Model
from crash.trees import any_tree, fingerprint, trees
from hypothesis import given
from hypothesis import strategies as st

A, B, X, Y = 2, 3, 4, 5
FOLDERS: list[Call] = [Make(TOP, "a", A, True, 1), Make(TOP, "b", B, True, 1), Sync(TOP)]
FILE: list[Call] = [Make(A, "x", X, False, 10), Write(X, 0, b"whole", 11), Sync(X), Sync(A)]
ALL = 10**6


def legal(model: Model, *calls: Call) -> list[Tree]:
    disk = Disk(model)
    for call in calls:
        disk.apply(call)
    return list(trees(disk, ALL, 0, random.Random(1)))


def names(model: Model, *calls: Call) -> set[frozenset[str]]:
    """The sets of files' names that may be left."""
    return {
        frozenset(path for path, file in tree.items() if file is not None)
        for tree in legal(model, *calls)
    }


def only(*paths: str) -> frozenset[str]:
    return frozenset(paths)


@pytest.mark.parametrize("model", Model)
def test_what_was_flushed_is_in_every_state(model: Model) -> None:
    for tree in legal(model, *FOLDERS, *FILE, Make(B, "y", Y, False, 1)):
        assert tree["/a/x"] == File(X, b"whole", 11)


@pytest.mark.parametrize("model", [Model.ATOMIC, Model.HALVES, Model.APART])
def test_a_file_s_fsync_says_nothing_of_its_name(model: Model) -> None:
    assert names(model, *FOLDERS, *FILE[:3]) == {only(), only("/a/x")}


def test_in_a_journal_an_fsync_keeps_all_names_up_to_its_own_change_and_the_rest_in_order() -> None:
    assert names(Model.JOURNAL, *FOLDERS, *FILE[:3]) == {only("/a/x")}
    more = (Make(A, "x", X, False, 1), Make(B, "y", Y, False, 1), Remove(A, "x"))
    assert names(Model.JOURNAL, *FOLDERS, *more) == {
        only(), only("/a/x"), only("/a/x", "/b/y"), only("/b/y"),
    }  # fmt: skip


@pytest.mark.parametrize("model", Model)
def test_bytes_that_were_not_flushed_are_there_or_not_or_torn_or_zeros(model: Model) -> None:
    made = (Make(A, "x", X, False, 10), Sync(A), Write(X, 0, b"whole", 11))
    found = {tree["/a/x"].data for tree in legal(model, *FOLDERS, *made) if tree["/a/x"]}
    assert found == {b"", b"wh", bytes(5), b"whole"}
    appended = (*FILE, Write(X, 5, b"more", 12))
    found = {tree["/a/x"].data for tree in legal(model, *FOLDERS, *appended) if tree["/a/x"]}
    assert found == {b"whole", b"wholemo", b"whole" + bytes(4), b"wholemore"}
    cut = (*FILE, Truncate(X, 2, 12))
    found = {tree["/a/x"].data for tree in legal(model, *FOLDERS, *cut) if tree["/a/x"]}
    assert {b"whole", b"wh"} <= found


def test_an_mtime_is_kept_by_the_file_s_fsync_alone() -> None:
    stamped = (*FOLDERS, *FILE, Stamp(X, 77))
    for model in Model:
        for calls, mtimes in ((stamped, {11, 77}), ((*stamped, Sync(X)), {77})):
            assert {
                tree["/a/x"].mtime_ns for tree in legal(model, *calls) if tree["/a/x"]
            } == mtimes
    folder = {
        tree["/a/x"].mtime_ns for tree in legal(Model.HALVES, *stamped, Sync(A)) if tree["/a/x"]
    }
    assert folder == {11, 77}


MOVED = (*FOLDERS, *FILE, Rename(A, "x", B, "x", X))
BOTH, OLD, NEW = only("/a/x", "/b/x"), only("/a/x"), only("/b/x")


@pytest.mark.parametrize(
    ("model", "then", "may_be"),
    [
        (Model.JOURNAL, (), {OLD, NEW}),
        (Model.JOURNAL, (Sync(TOP),), {OLD, NEW}),
        (Model.JOURNAL, (Sync(A),), {NEW}),
        (Model.JOURNAL, (Sync(B),), {NEW}),
        (Model.JOURNAL, (Sync(X),), {NEW}),
        (Model.ATOMIC, (), {OLD, NEW}),
        (Model.ATOMIC, (Sync(A),), {NEW}),
        (Model.ATOMIC, (Sync(B),), {NEW}),
        (Model.HALVES, (), {OLD, BOTH, NEW}),
        (Model.HALVES, (Sync(B),), {BOTH, NEW}),
        (Model.HALVES, (Sync(A),), {NEW}),
        (Model.APART, (), {OLD, BOTH, NEW}),
        (Model.APART, (Sync(B),), {BOTH, NEW}),
        (Model.APART, (Sync(A),), {only(), NEW}),
        (Model.APART, (Sync(B), Sync(A)), {NEW}),
    ],
)
def test_what_is_left_of_a_rename(
    model: Model, then: tuple[Call, ...], may_be: set[frozenset[str]]
) -> None:
    assert names(model, *MOVED, *then) == may_be


def test_a_file_is_not_brought_back_by_an_older_rename_than_the_one_that_was_flushed() -> None:
    again = (*MOVED, Rename(B, "x", TOP, "x", X), Sync(TOP), Sync(B))
    assert names(Model.ATOMIC, *again) == {only("/x")}
    assert names(Model.HALVES, *again) == {only("/x"), only("/x", "/a/x")}


def test_two_names_of_one_file_are_one_file() -> None:
    linked = legal(Model.ATOMIC, *FOLDERS, *FILE, Link(B, "y", X), Sync(B))
    assert [tree["/a/x"] == tree["/b/y"] for tree in linked] == [True]


def test_nothing_is_below_a_folder_whose_name_is_not_there() -> None:
    inside = (Make(TOP, "a", A, True, 1), *FILE)
    assert names(Model.ATOMIC, *inside) == {only(), only("/a/x")}


CALLS = st.lists(
    st.sampled_from(
        [
            Make(A, "x", X, False, 10), Write(X, 0, b"one", 11), Write(X, 3, b"two", 12),
            Stamp(X, 13), Rename(A, "x", B, "x", X), Rename(B, "x", A, "x", X), Sync(X), Sync(A),
            Sync(B),
        ]
    ),
    max_size=9,
)  # fmt: skip


def possible(calls: list[Call]) -> list[Call]:
    """Those that can be made: each name is where the call says."""
    made: list[Call] = []
    at = None
    for call in calls:
        match call:
            case Make() if at is None and not made.count(call):
                at = A
            case Rename(source) if at == source:
                at = call.target
            case Write() | Stamp() if at is not None:
                pass
            case Sync(inode) if inode != X or at is not None:
                pass
            case _:
                continue
        made.append(call)
    return made


@given(CALLS, st.sampled_from(list(Model)))
def test_what_the_memory_holds_is_legal_and_what_was_legal_stays_so_until_an_fsync(
    calls: list[Call], model: Model
) -> None:
    disk = Disk(model)
    states: set[int] = set()
    for call in [*FOLDERS, *possible(calls)]:
        disk.apply(call)
        now = {fingerprint(tree) for tree in trees(disk, ALL, 0, random.Random(1))}
        everything = list(itertools.chain(*(choice.ways[-1] for choice in disk.choices())))
        assert fingerprint(disk.tree(everything)) in now
        assert fingerprint(any_tree(disk, random.Random(2))) in now
        assert isinstance(call, Sync | Write) or states <= now
        if isinstance(call, Sync) and model is not Model.APART:  # Where it may keep half a rename.
            assert now <= states
        states = now


@given(CALLS, st.sampled_from(list(Model)))
def test_after_every_fsync_one_state_is_left(calls: list[Call], model: Model) -> None:
    flushed = [Sync(inode) for inode in (X, A, B, TOP) if inode != X or possible(calls)]
    made = possible(calls)
    if not any(isinstance(call, Make) for call in made):
        flushed = flushed[1:] if flushed[0] == Sync(X) else flushed
    assert len(legal(model, *FOLDERS, *made, *flushed)) == 1
