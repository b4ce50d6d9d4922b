"""The example with a day of real events, run as a person runs it."""

import os
import subprocess
from collections import Counter
from datetime import date
from pathlib import Path

import pyarrow.parquet
import pytest
from examples.flights import AIRLINE_WITH_A_BUG, DAY, FAILS_FIRST_OF, events_of
from harness.processes import Processes
from harness.spark_cluster import CHECKOUT, SITE
from harness.spark_programs import Programs

SCRIPT = CHECKOUT / "tests" / "examples" / "flights.py"


def test_a_day_has_what_the_data_set_has() -> None:
    events = events_of(DAY)
    assert Counter(each.facts["event"] for each in events) == {
        "departed": 883,
        "cancelled": 121,
        "landed": 846,
    }
    assert [each.seconds for each in events] == sorted(each.seconds for each in events)
    assert [each.number for each in events] == list(range(1850))
    assert events_of(date(2013, 2, 28)) != events


@pytest.mark.certificate
@pytest.mark.timeout(600)
def test_every_event_of_a_day_is_there_once(
    daemons: Processes, programs: Programs, root: Path, tmp_path: Path
) -> None:
    url, out = daemons.mq(root, "--standalone").url, tmp_path / "out"
    done = subprocess.run(
        [*programs.command("python"), str(SCRIPT), "--url", url, "--root", str(root),
         "--out", str(out), "--spark", "local[2]", "--seconds", "5"],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"SPARK_LOCAL_IP": "127.0.0.1", "PYTHONPATH": f"{SITE}:{CHECKOUT}"},
        timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    *lines, report, verdict = done.stdout.splitlines()
    assert verdict == "every event is there exactly once"
    said = {line[:38].strip(): int(line[38:].replace(",", "")) for line in lines}
    events = events_of(DAY)
    with_bug = [each for each in events if each.facts["carrier"] == AIRLINE_WITH_A_BUG]
    for_a_person = [
        each
        for each in events
        if each.facts["event"] == "cancelled" and each.facts["aircraft"] is None
    ]
    of_both = [each for each in with_bug if each in for_a_person]
    assert len(for_a_person) > 0
    assert said == {
        "events of the day": len(events),
        "handled, and in the archive": len(events) - len(for_a_person),
        "in the sideline, for a person": len(for_a_person),
        "events missing": 0,
        "events more than once": 0,
        "failed the first time": -(-len(events) // FAILS_FIRST_OF),
        "went to the sideline by the bug": len(with_bug) - len(of_both),
        "moved back by the shovel": len(with_bug) - len(of_both),
        "archived": len(events) - len(for_a_person),
        "findings of the audit": 0,
    }
    # And by other means than the example's own.
    assert report == f"the report: {out}/history/report.html"
    assert "A day of New York" in Path(report.partition(": ")[2]).read_text(encoding="utf-8")
    archived = pyarrow.parquet.read_table(out / "archive", columns=["id", "receives", "reason"])
    assert len(set(archived["id"].to_pylist())) == len(archived) == said["archived"]
    rates = pyarrow.parquet.read_table(out / "history" / "rates").to_pylist()
    of_all = [row for row in rates if row["priority"] is None]
    assert sum(row["published"] for row in of_all) == len(events)
    assert sum(row["removed"] for row in of_all) == said["archived"]
