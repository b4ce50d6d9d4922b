"""What a disk may hold after a cut."""

import io
import random
from pathlib import Path

import pytest
from crash.images import (
    Cut,
    Entry,
    Flush,
    Images,
    Kept,
    Mark,
    Write,
    Zeros,
    append_entry,
    choose_cuts,
    last_flush,
    read_log,
    surviving,
)

FIRST, SECOND, THIRD = (Write(n * 512, bytes([n]) * 1024) for n in (1, 2, 3))
LOG: list[Entry] = [FIRST, Flush(), Mark({"what": "made"}), SECOND, Zeros(0, 512), THIRD, Flush()]


def test_a_log_is_read_as_it_was_written() -> None:
    written = io.BytesIO()
    for entry in LOG:
        append_entry(written, entry)
    written.seek(0)
    assert list(read_log(written)) == LOG


@pytest.mark.parametrize(("at", "behind"), [(0, 0), (1, 0), (2, 2), (6, 2), (7, 7)])
def test_a_flush_covers_what_came_before_it(at: int, behind: int) -> None:
    assert last_flush(LOG, at) == behind


def test_what_came_since_the_flush_may_be_kept_or_lost() -> None:
    loose = [SECOND, Zeros(0, 512), THIRD]
    assert surviving(LOG, Cut(6, Kept.NOTHING, 0)) == []
    assert surviving(LOG, Cut(6, Kept.ALL, 0)) == loose
    prefixes = [surviving(LOG, Cut(6, Kept.PREFIX, seed)) for seed in range(50)]
    assert all(loose[: len(prefix)] == prefix for prefix in prefixes)
    assert {len(prefix) for prefix in prefixes} == {0, 1, 2, 3}
    subsets = [surviving(LOG, Cut(6, Kept.SUBSET, seed)) for seed in range(100)]
    assert all(subset == [each for each in loose if each in subset] for subset in subsets)
    assert len({tuple(subset) for subset in subsets}) == 8


def test_only_the_last_write_is_torn_and_only_between_sectors() -> None:
    torn = [surviving(LOG, Cut(6, Kept.TORN, seed)) for seed in range(100)]
    ends = {change[-1] for change in torn if len(change) == 3}
    assert ends == {Write(THIRD.offset, THIRD.data[:size]) for size in (0, 512, 1024)}
    assert all(change[:-1] in ([], [SECOND], [SECOND, Zeros(0, 512)]) for change in torn)


def test_an_image_is_the_flushed_disk_and_what_survived(tmp_path: Path) -> None:
    stable, image = tmp_path / "stable", tmp_path / "image"
    stable.write_bytes(bytes(4096))
    images = Images(LOG, stable)
    images.write(Cut(1, Kept.NOTHING, 0), image)
    assert image.read_bytes() == bytes(4096)
    images.write(Cut(3, Kept.NOTHING, 0), image)
    assert image.read_bytes() == bytes(512) + FIRST.data + bytes(2560)
    images.write(Cut(4, Kept.ALL, 0), image)
    assert image.read_bytes() == bytes(512) + FIRST.data[:512] + SECOND.data + bytes(2048)


def test_cuts_come_in_the_order_of_the_log_and_in_every_way() -> None:
    cuts = choose_cuts(LOG, 40, 512, random.Random(1))
    assert [cut.at for cut in cuts] == sorted(cut.at for cut in cuts)
    assert {cut.kept for cut in cuts} == set(Kept)
    assert sum(cut.at == 3 for cut in cuts) >= 16
