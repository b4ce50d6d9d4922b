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


@pytest.mark.parametrize(("key", "idempotency"), [(Key("K"), None), (None, Key("K"))])
def test_a_publish_fails_that_was_forgotten_by_a_process_that_saw_no_step_ahead(
    tmp_path: Path, key: Key | None, idempotency: Key | None
) -> None:
    place = LeasingRoot(tmp_path / "root")
    message_id = MessageId(place.uuids.next(), key=key)
    draft = Draft(QUEUE, message_id, message_id.published_ms, idempotency=idempotency)

    def forget_it() -> None:
        place.clock.set_ms(place.clock.now_ms() + 2 * round(FORGOTTEN_AFTER_S) * 1000)
        other = open_root(str(place.top), place.files, place.clock)
        assert not place.run(give_up_publishes(other, {(QUEUE, message_id)}))
        assert forget(other, QUEUE, message_id, FORGOTTEN_AFTER_S)

    with pytest.raises(StagedFileGone):
        place.run(publish(place.root, draft, b"x", forget_it))
