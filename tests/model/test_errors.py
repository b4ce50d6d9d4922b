"""The words that errors suggest."""

import pytest

from mq.model.errors import (
    BadFrame,
    BadParameter,
    UnknownParameter,
    UnknownSetting,
    nearest,
    suggestion,
)
from mq.model.selection import Selection
from mq.protocol.consume.frames import parse

NAMES = ("orders", "Orders-eu", "payments", "orders_SIDELINE")


def test_near_names_are_few_and_whatever_their_case() -> None:
    assert nearest("ORDER", NAMES) == ["orders"]
    assert nearest("order", NAMES, 2) == ["orders", "Orders-eu"]
    assert nearest("zzz", NAMES) == []


def test_a_suggestion_ends_a_sentence_or_is_nothing() -> None:
    assert suggestion("wiat", ("wait", "count")) == " (did you mean wait?)"
    assert suggestion("q" * 10**6, ("wait", "count")) == ""


def test_an_unknown_word_names_its_nearest() -> None:
    assert UnknownParameter("coutn", ("wait", "count")).hint == " (did you mean count?)"
    assert UnknownParameter("coutn").takes == "none"
    assert UnknownSetting("visibilty_s", ("visibility_s",)).hint == " (did you mean visibility_s?)"


@pytest.mark.parametrize(
    ("text", "meant"), [("priorty:5", "priority"), ("header:tracparent=1", "traceparent")]
)
def test_a_selection_names_the_nearest_kind_and_header(text: str, meant: str) -> None:
    with pytest.raises(BadParameter) as raised:
        Selection.parse(text)
    assert f"(did you mean {meant}?)" in raised.value.expected


def test_a_frame_names_the_nearest_command() -> None:
    with pytest.raises(BadFrame) as raised:
        parse('{"subscibe": []}')
    assert raised.value.expected.endswith("(did you mean subscribe?)")
