"""Every call on files that a request makes fails once, with every error that a disk knows.

What calls there are is found by letting the first fail, then the second, until none is left to
fail: a step that is added to an operation is tried without being named here.
"""

import errno
import re
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from faults.requests import (
    CUT_SHORT,
    DELETED_AGAIN,
    REQUESTS,
    Case,
    Request,
    background_ends,
    drain,
)
from harness.api import Reply, assert_problem
from harness.audits import assert_audits_clean
from harness.clock import FakeClock
from harness.faults import ALIKE, Fault, FaultyFiles, each_disk_error
from harness.folders import forget, message_files
from harness.internals import broker, stop_following
from harness.server import Serve, Server, commit_modes
from harness.waiting import comes_true

pytestmark = pytest.mark.certificate

PROBLEMS = {
    errno.EIO: "storage-failed",
    errno.ENOSPC: "no-space",
    errno.EDQUOT: "quota-exceeded",
    errno.EMFILE: "no-descriptors",
    errno.ENFILE: "no-descriptors",
    errno.EROFS: "read-only",
}
CALLS_MAX = 200
TOP = Path(__file__).parents[2]
# These look at every bucket of delay/, of which each trial here makes one more.
WITHOUT_END = (
    "create-deleted-queue", "delete-queue", "describe-queue", "peek", "purge", "purge-fetched",
    "purge-again",
)  # fmt: skip
IN_BUCKETS = [each for each in REQUESTS if each.name not in WITHOUT_END]
# The folder whose flush is the last before the answer, of those that go on after it.
LAST_FLUSHED = {
    "purge": "purged", "purge-fetched": "purged", "purge-again": "purged"
}  # fmt: skip
# What ESTALE may lead to besides 503 and success: it says that a name is gone.
NOTHING_THERE = (204, 404)


def is_survived(request: Request, fault: Fault) -> bool:
    """Whether the design lets the request succeed all the same."""
    call, path = fault.hit
    if fault.in_look:
        return True  # What relies on a fact raises what kept the look from finding it.
    if request.name in ("publish-lines", "publish-rows") and "/settings/" in path:
        return True  # The settings are looked at again before the lines are published.
    if request.name in ("publish-taken", "delete-by-key", "sideline") and "/.keys/" in path:
        return True  # A key that is not freed is replaced by its next message.
    if call == "unlink" and "/new/" in path:
        return True  # What stays is forgotten when it is an hour old.
    if "/members/" in path or path.endswith("/members"):
        return True  # Whoever is not told of a change of settings finds it when next it looks.
    if call in ("open_folder", "sync_file_system"):
        return True  # Each file and folder is fsynced instead.
    if fault.code in (errno.ENOSPC, errno.EDQUOT) and request.again == DELETED_AGAIN:
        # The file is unlinked instead; of a bucket, also where nobody can tell whether it lacks.
        return call in ("rename", "mkdir", "status")
    return False


def is_for_history(request: Request, fault: Fault, gone_well: list[tuple[str, str]]) -> bool:
    """Whether the fault came when it was only looked whether the queue has a history: the look at
    settings that a request needs comes before its first flush.
    """
    was_flushed = any(call.startswith("sync") for call, _ in gone_well)
    return "/settings/" in fault.hit[1] and was_flushed and "settings" not in request.name


@dataclass
class Trial:
    """What came of one request with one fault."""

    request: Request
    case: Case
    fault: Fault
    reply: Reply
    after_answer: bool
    """Whether the fault came when all that the answer promises was stored."""

    def __str__(self) -> str:
        return f"{self.request.name}: {self.fault} {self.reply.status} {self.reply.body[:200]!r}"


async def trials(
    request: Request, server: Server, files: FaultyFiles, clock: FakeClock, *codes: int
) -> AsyncIterator[Trial]:
    """The request, with its first call failed, then its second, until there is none to fail: with
    the first of the codes, the next, and so on.
    """
    # Its calls are no request's, and come when they will.
    await stop_following(server)
    # No other process is there whose facts could be old: a purge need not wait for it.
    broker(server).root.facts.settle_s = 0.0
    for after in range(CALLS_MAX):
        clock.advance(0.2)  # So that each one asks for the space that is left.
        case = request.case(server, f"q{after}")
        await request.prepare(case)
        begin = len(files.calls)
        fault = files.fail("", codes[after % len(codes)], times=1, after=after)
        reply = await request.send(case)
        await background_ends(server)
        files.heal()
        request.settle(case, reply)
        gone_well = files.calls[begin : begin + after]
        last = (
            "queues" if request.name.startswith("delete-queue") else LAST_FLUSHED.get(request.name)
        )
        after_answer = ("sync_folder", f"{server.root}/{last}") in gone_well
        after_answer = after_answer or is_for_history(request, fault, gone_well)
        yield Trial(request, case, fault, reply, after_answer)
        # Each audit looks at what this trial has left, the one before, and the first of all.
        if after > 1:
            forget(server.root, f"q{after - 1}")
        if not fault.hits:
            assert reply.status in request.success
            return
    raise AssertionError("a request without an end")


def test_no_step_tells_codes_apart_that_stand_for_each_other() -> None:
    """Or each call has to fail with each of them."""
    names = "|".join(errno.errorcode[code] for code in ALIKE)
    places = {
        f"{path.relative_to(TOP)}: {line.strip()}"
        for package in ("broker", "http", "protocol", "store", "../mq_mover", "../mq_reaper")
        for path in (TOP / "mq" / package).rglob("*.py")
        for line in path.read_text().splitlines()
        if re.search(rf"errno\.({names})\b", line)
    }
    assert places == {
        "mq/store/operations/remove.py: _NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)",
        "mq/store/opening.py: _FULL: Final = (errno.ENOSPC, errno.EDQUOT)",
        # What a start that fails says.
        'mq/store/opening.py: errno.EROFS: "mount its file system for writing",',
        'mq/store/opening.py: errno.EDQUOT: "free space, or raise the quota",',
    }


@each_disk_error(stale=False)
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
async def test_every_call_of_a_request_may_fail(
    serve: Serve, request_: Request, codes: Sequence[int], commit: str
) -> None:
    files, clock = FaultyFiles(), FakeClock()
    server = await serve(files=files, clock=clock, commit=commit)
    async for trial in trials(request_, server, files, clock, *codes):
        succeeded = trial.reply.status in request_.success
        survived = trial.after_answer or is_survived(request_, trial.fault)
        if trial.fault.hits and not (survived and succeeded):
            assert_refused(trial)
        assert_nothing_in_new(trial)
        await assert_healed(trial, files, clock)


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC], ids=errno.errorcode.get)
@pytest.mark.parametrize("request_", IN_BUCKETS, ids=lambda request: request.name)
async def test_every_call_of_a_request_in_buckets_may_fail(
    serve: Serve, request_: Request, code: int
) -> None:
    """No file lies flat, and none in a bucket: all lie below one."""
    files, clock = FaultyFiles(), FakeClock()
    server = await serve(files=files, clock=clock, commit="fsync", folder_max=0)
    async for trial in trials(request_, server, files, clock, code):
        succeeded = trial.reply.status in request_.success
        survived = trial.after_answer or is_survived(request_, trial.fault)
        if trial.fault.hits and not (survived and succeeded):
            assert_refused(trial)
        assert_nothing_in_new(trial)
        await assert_healed(trial, files, clock)


@commit_modes
@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: request.name)
async def test_every_name_of_a_request_may_be_stale(
    serve: Serve, request_: Request, commit: str
) -> None:
    """As over NFS. What says that a name is gone may be believed; no promise is broken by it."""
    files, clock = FaultyFiles(), FakeClock()
    server = await serve(files=files, clock=clock, commit=commit)
    async for trial in trials(request_, server, files, clock, errno.ESTALE):
        assert trial.reply.status in (*request_.success, *NOTHING_THERE, 503) or (
            trial.reply is CUT_SHORT and trial.fault.hit[0] == "read"
        ), trial
        await assert_healed(trial, files, clock)


def assert_nothing_in_new(trial: Trial) -> None:
    """But what could not be unlinked, or what somebody had left there."""
    if trial.fault.hit[0] != "unlink" and trial.request.name != "publish-once-left-in-new":
        names = message_files(trial.case.server.root)["new"]
        left = [name for name in names if name.startswith(f"{trial.case.queue}:")]
        assert left == [], trial


def assert_refused(trial: Trial) -> None:
    if trial.reply is CUT_SHORT:
        # The status was sent when the body could not be read.
        assert trial.fault.hit[0] == "read", trial
    else:
        assert trial.reply.status == 503, trial
        assert_problem(trial.reply, 503, PROBLEMS[trial.fault.code])


async def assert_healed(trial: Trial, files: FaultyFiles, clock: FakeClock) -> None:
    """Nothing is half done: all that is owed is delivered once, and what was asked works now."""
    request, case = trial.request, trial.case
    server = case.server
    assert files.retried == [], trial
    await comes_true(lambda: files.open_paths() == [], f"no open files after {trial}")
    assert_audits_clean(server.root)
    if request.again:
        reply = await request.send(case)
        assert reply.status in request.again, trial
        request.settle(case, reply)
        await background_ends(server)
    clock.advance(0.2)  # What was put aside is looked at again.
    bodies = await drain(server, case.queue)
    assert len(bodies) == len(set(bodies)), trial
    assert case.owed <= set(bodies) <= case.owed | case.possible, trial
    assert_audits_clean(server.root)
