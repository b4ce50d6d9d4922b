"""A history's lines, whatever its file holds."""

from pathlib import Path

from mq.model.limits import CHUNK_BYTES
from mq.store.disk.files import Files
from mq.store.history.read import HISTORY_LINE_BYTES_MAX, whole_lines


def lines_of(path: Path) -> list[bytes]:
    return list(whole_lines(Files(), str(path)))


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    assert lines_of(path) == []
    path.write_bytes(b"a\n\nb\nc")
    assert lines_of(path) == [b"a\n\nb"]


def test_a_line_that_no_process_wrote_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b"a\n" + b"x" * (9 * CHUNK_BYTES) + b"\nb\n")
    found = lines_of(path)
    assert found[0] == b"a"
    assert found[-1].endswith(b"\nb")
    assert max(map(len, found)) <= CHUNK_BYTES + HISTORY_LINE_BYTES_MAX
