"""Writes that take less than they were given: a body is whole, or refused and gone."""

import os
import resource
from collections.abc import Iterator

import pytest
from harness.api import assert_problem, assert_works, fetch, make_queue, post
from harness.folders import message_files, nothing_anywhere
from harness.server import KIB, Serve, body_sizes, commit_modes

pytestmark = pytest.mark.usefixtures("audited")

LIMIT_BYTES = 64 * KIB


@pytest.fixture
def writes_of_few_bytes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Each write takes a third of what it is given, or a byte; how many were short."""
    real = os.write
    short = [0]

    def write(descriptor: int, data: bytes | memoryview) -> int:
        taken = data[: max(1, len(data) // 3)]
        short[0] += len(taken) < len(data)
        return real(descriptor, taken)

    # Below the seam, since what is tried is how the seam takes it.
    monkeypatch.setattr(os, "write", write)
    return short


@body_sizes
@commit_modes
async def test_a_body_is_whole_though_every_write_is_short(
    writes_of_few_bytes: list[int], serve: Serve, commit: str, size: int
) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    body = os.urandom(size)
    assert (await post(server, body)).status == 201
    assert writes_of_few_bytes[0] > 0
    assert (await fetch(server)).body == body


@pytest.fixture
def small_files() -> Iterator[None]:
    """The kernel cuts what is written beyond the limit, and then refuses (EFBIG)."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT_BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [LIMIT_BYTES + 1, 3 * 1024 * KIB // 2], ids=["held", "streamed"])
@commit_modes
async def test_a_body_that_the_kernel_cuts_is_refused_and_gone(
    serve: Serve, small_files: None, commit: str, size: int
) -> None:
    server = await serve(commit=commit)
    await make_queue(server)
    assert_problem(await post(server, b"x" * size), 503, "storage-failed")
    assert message_files(server.root) == nothing_anywhere()
    assert (await post(server, b"x" * LIMIT_BYTES)).status == 201
    assert len((await fetch(server)).body) == LIMIT_BYTES
    await assert_works(server)
