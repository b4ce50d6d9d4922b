"""What inotify reports of messages that this process has added before."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from harness.clock import FakeClock
from harness.waiting import comes_true

from mq.broker.watching import Listening
from mq.model.names import MessageId, QueueName, UuidSource
from mq.store.core.arrivals import Arrivals, News
from mq.store.format.layout import Layout

QUEUE = QueueName.parse("orders")


class Folder:
    """A queue's folder that is listened to."""

    def __init__(self, top: Path) -> None:
        (top / "queues" / "orders").mkdir(parents=True)
        self.listening = Listening(Arrivals(Layout.of(str(top))), hears_all=True)
        self.heard: list[MessageId] = []
        self._top = top
        self.listening.begin(self._hear)
        self.listening.change([QUEUE], [])

    def get(self, message_id: MessageId) -> None:
        """The message comes, as by a publish or a redelivery."""
        written = self._top / "written"
        written.touch()
        written.rename(self._top / "queues" / "orders" / message_id.text)

    def _hear(self, news: News) -> None:
        self.heard += news.arrived.get(QUEUE, [])


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Folder]:
    made = Folder(tmp_path)
    yield made
    made.listening.end()


@pytest.fixture
def ids() -> list[MessageId]:
    source = UuidSource(FakeClock())
    return [MessageId(source.next()) for _ in range(2)]


async def test_what_was_added_before_its_report_is_no_news(
    folder: Folder, ids: list[MessageId]
) -> None:
    known, other = ids
    folder.get(known)
    folder.listening.knows(QUEUE, [known])
    folder.get(other)
    await comes_true(lambda: folder.heard == [other], "the other is news")


async def test_a_message_that_is_brought_back_is_news_though_its_publish_was_not_reported(
    folder: Folder, ids: list[MessageId]
) -> None:
    """A publish into a bucket is not: what the folder gets of the message is a redelivery."""
    known, other = ids
    folder.listening.knows(QUEUE, [known])
    folder.get(other)
    await comes_true(lambda: folder.heard == [other], "all until now was read")
    folder.get(known)
    await comes_true(lambda: folder.heard == [other, known], "it came back")
