"""Whose folder an archive is, and what it says of itself: refusals, commits, compaction's plan."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harness.archiving import archive_here, numbers_in, put_removed
from harness.folders import make_root
from hypothesis import given, settings
from hypothesis import strategies as st

from mq.model.errors import ArchiveBusy, ArchivedElsewhere, StartupError
from mq.spark.commands.archive import archive
from mq.spark.jobs.archive import end_archiving, opened_archive
from mq.spark.jobs.archive_folder import (
    ArchiveDamaged,
    ArchiveFolder,
    ArchiveFolderBusy,
    Commit,
    DataFile,
    Filed,
    NoArchive,
    own_archive_folder,
)
from mq.spark.jobs.archive_rows import ARCHIVED_FILE_BYTES_MAX
from mq.spark.jobs.archive_task import SMALL_FILE_BYTES_MAX, plan
from mq.spark.jobs.folders import PathIsPattern
from mq.store.disk.files import Files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = make_root(tmp_path / "root")
    put_removed(root, 3)
    return root


def _other_files(root: Path, to: Path) -> None:
    to.mkdir()
    (to / "notes.txt").write_text("mine")


def _of_another_root(root: Path, to: Path) -> None:
    archive_here(make_root(root.parent / "another"), to)


def _of_another_version(root: Path, to: Path) -> None:
    archive_here(root, to)
    (to / "_mq" / "archive.json").write_text('{"version": 2}')


def _away(root: Path, to: Path) -> None:
    archive_here(root, to)
    shutil.rmtree(to)
    to.mkdir()


@pytest.mark.parametrize(
    ("prepare", "words"),
    [
        (_other_files, "is not empty, and no archive"),
        (_of_another_root, "is the archive of another root"),
        (_of_another_version, "not what this mq writes"),
        (_away, "Is it mounted?"),
    ],
)
def test_a_folder_that_cannot_be_its_archive(
    root: Path, tmp_path: Path, prepare: Callable[[Path, Path], None], words: str
) -> None:
    to = tmp_path / "archive"
    prepare(root, to)
    with pytest.raises(NoArchive, match=re.escape(words)):
        archive_here(root, to)
    assert len(list((root / "remove").iterdir())) == 3


@pytest.mark.parametrize("inside", ["{root}/archive", "{root}", "{root}/..", "{root}/new/a"])
def test_an_archive_and_its_root_do_not_lie_in_one_another(root: Path, inside: str) -> None:
    with pytest.raises(NoArchive, match="do not lie in one another"):
        archive_here(root, Path(inside.format(root=root)))


def test_no_pattern_no_root_and_no_second_archive(root: Path, tmp_path: Path) -> None:
    with pytest.raises(PathIsPattern):
        archive_here(root, tmp_path / "a[b]")
    with pytest.raises(StartupError):
        archive_here(tmp_path / "nowhere", tmp_path / "archive")
    archive_here(root, tmp_path / "archive")
    with pytest.raises(ArchivedElsewhere, match="end that archive"):
        archive_here(root, tmp_path / "another")
    assert end_archiving(root)
    assert not end_archiving(root)
    put_removed(root, 1, first=3)
    archive_here(root, tmp_path / "another")
    assert numbers_in(tmp_path / "archive") == [0, 1, 2]
    assert numbers_in(tmp_path / "another") == [0, 1, 2, 3]


def test_one_job_of_a_root_and_of_a_folder(root: Path, tmp_path: Path) -> None:
    to = tmp_path / "archive"
    with opened_archive(root, to), pytest.raises(ArchiveBusy):
        archive_here(root, to)
    with own_archive_folder(ArchiveFolder.of(str(to), Files())), pytest.raises(ArchiveFolderBusy):
        archive_here(root, to)
    assert archive_here(root, to).messages == 3


def test_the_command_that_ends_it(root: Path, tmp_path: Path) -> None:
    archive_here(root, tmp_path / "archive")
    ended = CliRunner().invoke(archive, ["--root", str(root), "--disable", "--json"])
    assert (ended.exit_code, json.loads(ended.output)) == (0, {"disabled": True})
    again = CliRunner().invoke(archive, ["--root", str(root), "--disable"])
    assert again.output == f"{root} was not archived\n"
    assert CliRunner().invoke(archive, ["--root", str(root)]).exit_code == 2


WORDS = st.text("0123456789abcdef-", min_size=1, max_size=20)
FOLDERS = st.sampled_from(("queue=a/day=2026-01-01", "_bodies/queue=b/day=2026-01-02"))
FILED = st.builds(Filed, FOLDERS, WORDS.map(lambda word: f"{word}.parquet"))
COMMITS = st.builds(
    Commit,
    st.just("7"),
    WORDS,
    st.lists(FILED, max_size=3).map(tuple),
    st.lists(FILED, max_size=3).map(tuple),
    st.none() | st.integers(1),
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)


@given(COMMITS)
def test_a_commit_is_read_as_it_was_written(commit: Commit) -> None:
    fields = json.loads(json.dumps(commit.fields()))
    assert Commit.parse("7", "/path", fields) == commit


@settings(max_examples=60)
@given(COMMITS, st.sampled_from(("version", "staged", "files", "replaced", "batch")), JSON)
def test_what_is_no_commit_is_refused(commit: Commit, name: str, value: Any) -> None:
    try:
        read = Commit.parse("7", "/path", commit.fields() | {name: value})
    except ArchiveDamaged:
        return
    assert read.fields()[name] == value


@pytest.mark.parametrize(
    "file",
    [
        ["queue=a/day=2026-01-01", "../x.parquet"],
        ["../queue=a/day=2026-01-01", "x.parquet"],
        ["queue=../day=2026-01-01", "x.parquet"],
        ["queue=a/day=2026-01-01/..", "x.parquet"],
        ["/queue=a/day=2026-01-01", "x.parquet"],
        ["_mq", "archive.json"],
        ["", "x.parquet"],
    ],
)
def test_a_commit_leads_nowhere_else(file: list[str]) -> None:
    fields = Commit("7", "s", (), (), 7).fields()
    for kind in ("files", "replaced"):
        with pytest.raises(ArchiveDamaged):
            Commit.parse("7", "/path", fields | {kind: [file]})
    with pytest.raises(ArchiveDamaged):
        Commit.parse("7", "/path", fields | {"staged": "../other"})


DATA_FILES = st.lists(
    st.builds(
        DataFile,
        st.sampled_from(("a", "b")),
        st.integers(0, 99).map(str),
        st.integers(0, 2 * SMALL_FILE_BYTES_MAX),
    ),
    unique_by=lambda file: file.path,
)


@given(DATA_FILES, st.integers(1, 9))
def test_what_is_compacted(files: list[DataFile], small_max: int) -> None:
    groups = plan(files, small_max)
    taken = [file for group in groups for file in group.files]
    assert len(taken) == len(set(taken))
    assert set(taken) <= set(files)
    for group in groups:
        assert len(group.files) > 1
        assert {file.folder for file in group.files} == {group.folder}
        assert sum(file.size for file in group.files) <= ARCHIVED_FILE_BYTES_MAX
    for folder in ("a", "b"):
        small = [
            file for file in files if file.folder == folder and file.size < SMALL_FILE_BYTES_MAX
        ]
        of_folder = [file for file in taken if file.folder == folder]
        assert set(of_folder) <= set(small)
        assert len(small) > small_max or not of_folder


def test_a_dry_run_counts_and_changes_nothing(root: Path, tmp_path: Path) -> None:
    to = tmp_path / "archive"

    def told(exit_code: int = 0) -> Any:
        before = sorted(path for path in tmp_path.rglob("*"))
        given = ["--root", str(root), "--to", str(to), "--dry-run", "--json"]
        done = CliRunner().invoke(archive, given)
        assert done.exit_code == exit_code, done.output
        assert sorted(path for path in tmp_path.rglob("*")) == before
        return json.loads(done.output if exit_code == 0 else done.stderr)

    told_first = told()
    assert told_first.pop("oldest").endswith("Z")
    assert told_first == {"dry_run": True, "to": str(to), "messages": 3, "is_enabled": False}
    archive_here(root, to)
    put_removed(root, 2, first=3)
    assert told()["messages"] == 2
    (to / "_mq" / "archive.json").unlink()
    assert "is not there" in told(1)["error"]["message"]
