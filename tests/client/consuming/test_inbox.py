"""What a consumer has that nobody has taken: each message once, and as many as there may be."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from mq.client.consuming.inbox import Inbox
from mq.client.message import AsyncMessage, Settler
from mq.client.wire import Row

NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
NOBODY: Settler = None  # type: ignore[assignment]


def message(number: int, receives: int) -> AsyncMessage:
    return AsyncMessage("orders", Row(f"{number:032x}", receives, NOW, NOW, {}), NOBODY)


@given(
    st.lists(st.tuples(st.sampled_from(["put", "take", "lose"]), st.integers(0, 4)), max_size=60)
)
def test_the_latest_delivery_of_each_message_is_there_once(steps: list[tuple[str, int]]) -> None:
    inbox = Inbox({"orders": 100})
    model: list[AsyncMessage] = []
    for receives, (step, number) in enumerate(steps):
        if step == "put":
            made = message(number, receives)
            model = [*(each for each in model if each.id != made.id), made]
            inbox.put(made)
        elif step == "take":
            assert inbox.take() is (model.pop(0) if model else None)
        else:
            lost = f"{number:032x}"
            model = [each for each in model if each.id != lost]
            inbox.lose(lambda each, lost=lost: each.id == lost)  # type: ignore[misc]
        assert inbox.wanted("orders") == 100 - len(model)
    while model:
        assert inbox.take() is model.pop(0)
    assert inbox.take() is None
