"""What one mq keeps of a message another tells: rows, tags, selections, failures and a shared
sideline, at two mqs of one root, one of which is killed in the middle.
"""

from pathlib import Path

import pytest
from harness.audits import assert_audits_clean
from harness.processes import Processes, eventually

from mq import Client
from mq.client.errors import MessageNotFound
from mq.client.values import NewMessage
from mq.model.failure import Failure

SHARED = "shared_SIDELINE"
TAGS = ("eu", "night")


def test_each_finds_what_the_other_keeps(daemons: Processes, root: Path) -> None:
    first, second = daemons.mq(root), daemons.mq(root)
    with Client(first.url) as one, Client(second.url) as other:
        here, there = one.queue("orders"), other.queue("orders")
        here.create()
        here.change_settings(sideline_to=SHARED)
        answers = here.publish_many(
            NewMessage(b"%d" % n, tags=TAGS[n % 2 :], headers={"Ce-Type": f"kind-{n % 2}"})
            for n in range(6)
        )
        ids = [each.id for each in answers if each.id]
        assert [each.id for each in there.tagged("night").messages] == ids
        assert [each.id for each in there.tagged("eu").messages] == ids[::2]
        rows = there.peek(select=["header:ce-type=kind-1"])
        assert [each.id for each in rows] == ids[1::2]

        # Failures, of which the one that wrote them dies.
        message = there.fetch()
        assert message is not None
        assert message.id == ids[0]
        message.release(reason=Failure("the stove is cold", "RuntimeError"))
        second.popen.kill()
        second.popen.wait()
        assert [each.text for each in here.failures(ids[0])] == ["the stove is cold"]
        settled = here.sideline_messages(ids[:2])
        assert all(each.is_done for each in settled)

    third = daemons.mq(root)
    with Client(first.url) as one, Client(third.url) as other:
        here, there = one.queue("orders"), other.queue("orders")
        assert there.sideline_tagged("eu") == 2
        kept = other.queue(SHARED)
        assert {each.id for each in kept.peek()} == {ids[0], ids[1], ids[2], ids[4]}
        assert [each.text for each in kept.failures(ids[0])][:1] == ["the stove is cold"]
        with pytest.raises(MessageNotFound):
            here.read(ids[0])
        there.shovel()
        eventually(lambda: here.shovel_progress().is_over, "the shovel's end")
        assert [each.id for each in here.tagged("night").messages] == ids
        assert here.delete_tagged("night") == 6
        assert there.tagged("night").messages == ()
        assert there.fetch() is None
    assert_audits_clean(root)
