"""A stream's decisions without Spark, on the store's real folders: every order of crashes."""

import json
from pathlib import Path

import pytest
from harness.leases import CONSUMER, LEASE_S, QUEUE, LeasingRoot, ids_in
from harness.query import DEATHS, Query

from mq.model.errors import ConsumerBusy, QueueNotFound
from mq.model.lifecycle import State
from mq.model.names import MessageId, QueueName
from mq.spark.leasing import keep_renewed
from mq.spark.listener import Processed, Runs, acknowledge_up_to, report
from mq.spark.listing import blocks_of
from mq.spark.options import Subscription
from mq.spark.streaming import OWNER_WAIT_S, DataLost, ForeignCheckpoint
from mq.store.leases.lease import LeaseState, acknowledge, claim, own
from mq.store.leases.releasing import give_back, release


@pytest.fixture
def place(tmp_path: Path) -> LeasingRoot:
    return LeasingRoot(tmp_path / "root")


@pytest.fixture
def query(place: LeasingRoot) -> Query:
    return Query(place.top, place.clock)


def texts(ids: list[MessageId]) -> set[str]:
    return {message_id.text for message_id in ids}


def in_state(place: LeasingRoot, state: State) -> set[str]:
    blocks = blocks_of(place.root, Subscription((QUEUE,)), state)
    return {name.rpartition(":")[2] for block in blocks for name in block.names}


def open_leases(place: LeasingRoot) -> list[int]:
    return [lease.seq for lease in place.leases() if lease.is_open]


def drain(query: Query) -> None:
    while query.trigger():
        pass


def delivered(query: Query) -> list[str]:
    """What committed batches brought, sorted; what came twice is there twice."""
    log = query.checkpoint
    return sorted(name for number in range(log.committed) for name in log.sink[number])


def lapse(place: LeasingRoot) -> None:
    """Time goes on, and mq-mover comes by."""
    place.clock.advance(LEASE_S + 1)
    for lease in place.leases():
        place.run(give_back(place.root, lease.name, only_due=True))


def test_a_queue_is_drained_in_batches(place: LeasingRoot, query: Query) -> None:
    published = texts(place.publish(8))
    drain(query)
    assert [len(each) for each in query.checkpoint.sink.values()] == [3, 3, 2]
    assert delivered(query) == sorted(published)
    assert in_state(place, State.REMOVED) == published
    assert open_leases(place) == []


@pytest.mark.parametrize("death", DEATHS)
def test_whoever_comes_after_a_death_goes_on(place: LeasingRoot, query: Query, death: str) -> None:
    published = texts(place.publish(8))
    assert query.trigger()
    query.trigger(death=death)
    drain(query)
    assert delivered(query) == sorted(published)
    assert in_state(place, State.REMOVED) == published
    assert query.read == {each: [read[0]] * len(read) for each, read in query.read.items()}


def test_wherever_a_claim_dies_nothing_is_lost_nor_comes_twice(tmp_path: Path) -> None:
    changes, at = 1, 0
    while at < changes:
        place = LeasingRoot(tmp_path / f"root{at}")
        query = Query(place.top, place.clock)
        published = texts(place.publish(8))
        assert query.trigger()
        query.die()
        query.trigger(changes_left=at)
        changes = max(changes, at + 2) if query.files.is_dead else at
        query.die()
        drain(query)
        assert delivered(query) == sorted(published), at
        assert in_state(place, State.REMOVED) == published, at
        at += 1
    assert at > 10


def test_without_its_checkpoint_a_query_gets_what_was_not_acknowledged(
    place: LeasingRoot, query: Query
) -> None:
    published = texts(place.publish(7))
    assert query.trigger()
    assert query.trigger()
    first, second = query.checkpoint.sink[0], query.checkpoint.sink[1]
    query.forget()
    drain(query)
    assert query.checkpoint.sink[0] == second
    assert delivered(query) == sorted(published - first)


def test_a_lost_checkpoint_begins_no_number_again(place: LeasingRoot, query: Query) -> None:
    place.publish(7)
    drain(query)
    query.forget()
    published = texts(place.publish(2))
    drain(query)
    assert query.checkpoint.ends == [4]
    assert delivered(query) == sorted(published)


def test_a_batch_whose_lease_lapsed_comes_again_later(place: LeasingRoot, query: Query) -> None:
    published = texts(place.publish(2))
    query.trigger(death="after the offset log")
    lapse(place)
    assert in_state(place, State.READY) == published
    drain(query)
    assert query.checkpoint.sink[0] == set()
    assert delivered(query) == sorted(published)


def test_what_lapsed_before_it_was_acknowledged_is_delivered_twice(
    place: LeasingRoot, query: Query
) -> None:
    published = texts(place.publish(2))
    query.trigger(death="after the commit log")
    lapse(place)
    drain(query)
    assert delivered(query) == sorted([*published, *published])
    assert in_state(place, State.REMOVED) == published


def test_a_lease_does_not_lapse_while_its_query_runs(place: LeasingRoot, query: Query) -> None:
    place.publish(2)
    query.trigger()
    waits: list[float] = []

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        place.clock.advance(seconds)
        for lease in place.leases():
            place.run(give_back(place.root, lease.name, only_due=True))
        return len(waits) == 9

    keep_renewed(place.root, CONSUMER, LEASE_S, wait)
    assert waits == [LEASE_S / 3] * 9
    assert open_leases(place) == [1]


def test_whoever_goes_on_renews_at_once(place: LeasingRoot, query: Query) -> None:
    published = texts(place.publish(2))
    query.trigger(death="after the offset log")
    place.clock.advance(LEASE_S - 1)
    query.start().batch(0, 1)
    place.clock.advance(2)
    for lease in place.leases():
        place.run(give_back(place.root, lease.name, only_due=True))
    drain(query)
    assert query.checkpoint.sink[0] == published


def test_what_is_not_to_be_read_again_is_an_error(place: LeasingRoot, query: Query) -> None:
    place.publish(5)
    assert query.trigger()
    query.trigger(death="after the offset log")
    place.run(acknowledge(place.root, place.leases()[-1].name))
    with pytest.raises(DataLost, match=r"c\.2 of the batch cannot be read again"):
        query.trigger()
    query.die()
    other = Query(place.top, place.clock, failOnDataLoss=False)
    other.checkpoint = query.checkpoint
    assert other.trigger()
    assert other.checkpoint.sink[1] == set()


@pytest.mark.parametrize("seqs", [(0, 10**12), (4, 10**12)])
def test_a_batch_of_leases_that_never_were_is_an_error(
    place: LeasingRoot, query: Query, seqs: tuple[int, int]
) -> None:
    with pytest.raises(DataLost, match="and more"):
        query.start().batch(*seqs)


def test_a_checkpoint_of_another_root_acknowledges_nothing(
    place: LeasingRoot, query: Query
) -> None:
    published = texts(place.publish(2))
    assert place.claim() is not None
    with pytest.raises(ForeignCheckpoint, match="is at lease 7 of c, whose last lease is 1"):
        query.start().latest_seq(7, 3)
    assert open_leases(place) == [1]
    query.die()
    other = Query(place.top, place.clock, failOnDataLoss=False)
    stream = other.start()
    assert stream.latest_seq(7, 3) == 8
    assert texts_of(place, 8) == published


def texts_of(place: LeasingRoot, seq: int) -> set[str]:
    return {name for each in place.leases() if each.seq == seq for name in ids_in(each.folder)}


def test_a_consumers_name_is_for_one_query(place: LeasingRoot, query: Query) -> None:
    place.publish(2)
    query.trigger()
    other = Query(place.top, place.clock)
    with pytest.raises(ConsumerBusy, match="another query uses the consumer name c"):
        other.trigger()
    assert other.waited_s == pytest.approx(OWNER_WAIT_S)
    query.die()
    assert other.trigger()
    assert other.checkpoint.sink == query.checkpoint.sink


def test_a_predecessor_that_is_ending_is_waited_for(place: LeasingRoot, query: Query) -> None:
    published = texts(place.publish(2))
    owner = own(place.root, CONSUMER)
    stream = query.start()
    stream.wait = lambda seconds: owner.close()
    assert stream.latest_seq(0, 3) == 1
    assert texts_of(place, 1) == published


def test_where_nothing_is_ready_looks_become_rare(place: LeasingRoot, query: Query) -> None:
    for _ in range(10):
        assert not query.trigger()
    idle_s = query.waited_s
    assert idle_s > 1
    place.publish(1)
    assert query.trigger()
    assert query.trigger() is False
    assert 0 < query.waited_s - idle_s <= 1
    assert list((place.top / "leases").glob("*.json")) != []


def test_all_that_is_ready_is_one_batch_where_spark_asks_for_that(
    place: LeasingRoot, query: Query, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mq.spark.streaming.LEASED_MESSAGES_MAX", 3)
    published = texts(place.publish(8))
    assert query.trigger(limit=None)
    assert query.checkpoint.ends == [3]
    assert query.checkpoint.sink[0] == published


def test_only_what_is_ready_is_taken_where_spark_asks_for_that(
    place: LeasingRoot, query: Query
) -> None:
    published = texts(place.publish(4))
    query.start().only_what_is_ready()
    late = texts(place.publish(4, priority=9))
    drain(query)
    assert delivered(query) == sorted(published)
    assert in_state(place, State.READY) == late


def test_a_queue_that_is_not_there_is_an_error(place: LeasingRoot) -> None:
    query = Query(place.top, place.clock, subscribe="q,other")
    with pytest.raises(QueueNotFound):
        query.trigger()
    place.make_queue(QueueName.parse("other"))
    place.publish(1, QueueName.parse("other"))
    assert query.trigger()


def test_a_pattern_finds_queues_that_are_made_later(place: LeasingRoot) -> None:
    query = Query(place.top, place.clock)
    given = {"path": str(place.top), "subscribePattern": "q.*", "consumer": "c"}
    query.options = type(query.options).parse(given)
    assert not query.trigger()
    place.make_queue(QueueName.parse("q2"))
    published = texts(place.publish(2, QueueName.parse("q2")))
    drain(query)
    assert delivered(query) == sorted(published)


def test_the_last_batch_of_a_run_that_ended_well_is_acknowledged(
    place: LeasingRoot, query: Query
) -> None:
    published = texts(place.publish(5))
    query.trigger()
    query.trigger()
    query.die()
    assert open_leases(place) == [2]
    runs, said = Runs(), json.dumps(report(place.top, "c"))
    runs.progressed("run", [(said, '{"seq": 1}'), (None, '{"seq": 9}'), ("5", None)])
    runs.progressed("run", [(None, '{"seq": 2}')])
    runs.progressed("run", [(said, '{"seq": 2}')])
    assert runs.ended("another", is_well=True) == []
    for processed in runs.ended("run", is_well=True):
        assert acknowledge_up_to(processed) == 1
    assert in_state(place, State.REMOVED) == published
    assert runs.ended("run", is_well=True) == []


def test_a_run_that_failed_leaves_its_last_batch(place: LeasingRoot) -> None:
    runs = Runs()
    runs.progressed("run", [(json.dumps(report(place.top, "c")), '{"seq": 2}')])
    assert runs.ended("run", is_well=False) == []


def test_a_root_that_is_not_to_be_seen_is_no_error(tmp_path: Path) -> None:
    assert acknowledge_up_to(Processed(tmp_path / "nowhere", CONSUMER, 1)) == 0


def test_no_number_is_left_out(place: LeasingRoot, query: Query) -> None:
    """A claim that died before it made a folder has taken none."""
    place.publish(2)
    place.root.files.close(place.root.files.create(f"{place.top}/leases/c.1.json"))
    assert query.trigger()
    assert query.checkpoint.ends == [1]
    query.trigger()
    assert [lease.state for lease in place.leases()] == [LeaseState.ACKNOWLEDGED]


def test_a_lease_whose_manifest_is_lost_is_as_any(place: LeasingRoot, query: Query) -> None:
    published = texts(place.publish(4))
    place.claimed(2)
    (place.top / "leases" / "c.1.json").unlink()
    drain(query)
    assert delivered(query) == sorted(published)
    assert [lease.seq for lease in place.leases()] == [2]


def test_a_claim_goes_on_behind_a_number(place: LeasingRoot) -> None:
    place.publish(2)
    first = place.run(claim(place.root, CONSUMER, (QUEUE,), 1, LEASE_S, after=6))
    assert first is not None
    assert first.seq == 7
    assert place.claimed(1).seq == 8
    place.run(release(place.root, first.name))
