"""A queue's settings: what each may be, and how a merge patch changes them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.model.errors import BadSetting, UnknownSetting
from mq.model.setting_kinds import SidelineName, Time
from mq.model.settings import FIXED_SETTINGS, SETTINGS, QueueSettings, check_patch, merged

NAMES = ["a", "b", "c", "d"]

values = st.none() | st.integers() | st.text(max_size=3) | st.booleans()
fields = st.dictionaries(st.sampled_from(NAMES), values)


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7396, section 2, as it stands there."""
    if isinstance(patch, dict):
        if not isinstance(target, dict):
            target = {}
        for name, value in patch.items():
            if value is None:
                if name in target:
                    del target[name]
            else:
                target[name] = merge_patch(target.get(name), value)
        return target
    return patch


@given(fields, fields)
def test_a_patch_merges_as_the_rfc_says(
    target: dict[str, object], patch: dict[str, object]
) -> None:
    assert merged(target, patch) == merge_patch(dict(target), patch)


@pytest.mark.parametrize(
    ("target", "patch", "result"),
    [  # RFC 7396, appendix A, where no value is an object or an array.
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": None}, {}),
    ],
)
def test_the_rfc_s_own_examples(
    target: dict[str, object], patch: dict[str, object], result: dict[str, object]
) -> None:
    assert merged(target, patch) == result


@given(st.lists(fields, max_size=5), fields)
def test_a_patch_that_is_said_twice_changes_nothing_more(
    patches: list[dict[str, object]], last: dict[str, object]
) -> None:
    found: dict[str, object] = {}
    for patch in patches:
        found = merged(found, patch)
    once = merged(found, last)
    assert merged(once, last) == once


def test_every_setting_that_may_be_changed_is_a_field_with_a_default_that_it_may_have() -> None:
    defaults = QueueSettings().as_json()
    assert set(defaults) == set(SETTINGS)
    for name, setting in SETTINGS.items():
        is_unset = isinstance(setting, Time | SidelineName) and defaults[name] is None
        assert setting.accepts(defaults[name]) or is_unset
    assert not set(SETTINGS) & set(FIXED_SETTINGS)


@given(
    st.sampled_from(sorted(SETTINGS)),
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
)
def test_a_value_is_taken_whole_or_named(name: str, value: object) -> None:
    patch = {name: value}
    if value is not None and not SETTINGS[name].accepts(value):
        with pytest.raises(BadSetting) as told:
            check_patch(patch)
        assert told.value.parameter == name
        return
    check_patch(patch)
    found = QueueSettings().with_fields(merged({}, patch)).as_json()[name]
    assert found == (QueueSettings().as_json()[name] if value is None else value)


def test_an_unknown_setting_is_told_before_a_bad_value() -> None:
    with pytest.raises(UnknownSetting) as told:
        check_patch({"visibility_s": -1, "colour": "red"})
    assert told.value.parameter == "colour"
