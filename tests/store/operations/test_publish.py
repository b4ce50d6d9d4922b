"""Publishing while others change the root."""

from pathlib import Path

import pytest
from harness.leases import QUEUE, LeasingRoot

from mq.model.errors import StagedFileGone
from mq.model.limits import FORGOTTEN_AFTER_S
from mq.model.names import Key, MessageId
from mq.store.keys.orphans import give_up_publishes
from mq.store.opening import open_root
from mq.store.operations.publish import Draft, publish
from mq.store.operations.redeliver import forget


def publish_meanwhile(
    tmp_path: Path, key: Key | None, idempotency: Key | None, is_given_up: bool
) -> None:
    """Publishes, while a process that sees a step of the clock ahead sweeps new/."""
    place = LeasingRoot(tmp_path / "root")
    message_id = MessageId(place.uuids.next(), key=key)
    draft = Draft(QUEUE, message_id, message_id.published_ms, idempotency=idempotency)

    def forget_it() -> None:
        place.clock.set_ms(place.clock.now_ms() + 2 * round(FORGOTTEN_AFTER_S) * 1000)
        other = open_root(str(place.top), place.files, place.clock)
        kept = place.run(give_up_publishes(other, {(QUEUE, message_id)}))
        assert bool(kept) is not is_given_up
        if is_given_up:
            assert forget(other, QUEUE, message_id, FORGOTTEN_AFTER_S)

    assert place.run(publish(place.root, draft, b"x", forget_it)) == message_id


def test_a_publish_fails_that_was_forgotten(tmp_path: Path) -> None:
    with pytest.raises(StagedFileGone):
        publish_meanwhile(tmp_path, Key("K"), None, is_given_up=True)


def test_a_publish_is_not_given_up_while_it_makes_its_link(tmp_path: Path) -> None:
    publish_meanwhile(tmp_path, None, Key("K"), is_given_up=False)
