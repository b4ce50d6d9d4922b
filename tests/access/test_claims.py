"""What claims say of a caller: pure."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mq.access.callers import CALLER_NAME_CHARS_MAX, GRANTS_MAX, Right
from mq.access.claims import BadClaims, caller_of

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


def test_grants_of_both_claims_add_up_and_scopes_of_others_do_not_count() -> None:
    caller = caller_of(
        {
            "sub": "shop",
            "mq_grants": ["orders-*:publish"],
            "scope": "openid mq:invoices:consume,publish email",
        }
    )
    assert caller.name == "shop"
    assert caller.may(Right.PUBLISH, "orders-7")
    assert caller.may(Right.CONSUME, "invoices")
    assert not caller.may(Right.CONSUME, "orders-7")
    assert not caller.may(Right.ADMIN, "invoices")
    assert not caller.may(Right.PUBLISH)


def test_a_scope_may_be_a_list_and_who_has_none_may_nothing() -> None:
    assert caller_of({"client_id": "a", "scope": ["mq:*:admin"]}).may(Right.ADMIN)
    assert caller_of({"sub": "a"}).grants == ()


@pytest.mark.parametrize(
    "claims",
    [
        {},
        {"sub": 7},
        {"sub": ""},
        {"sub": "two\nlines"},
        {"sub": "x" * (CALLER_NAME_CHARS_MAX + 1)},
        {"sub": "a", "mq_grants": "orders:publish"},
        {"sub": "a", "mq_grants": ["orders:publish", 7]},
        {"sub": "a", "mq_grants": ["orders:publish", "typo"]},
        {"sub": "a", "scope": "mq:orders"},
        {"sub": "a", "scope": 7},
        {"sub": "a", "mq_grants": ["q:publish"] * (GRANTS_MAX + 1)},
    ],
)
def test_claims_that_say_nothing_clear_are_refused(claims: dict[str, object]) -> None:
    with pytest.raises(BadClaims):
        caller_of(claims)


@given(st.dictionaries(st.sampled_from(["sub", "client_id", "mq_grants", "scope", "x"]), JSON))
def test_whatever_claims_hold_is_a_caller_or_refused(claims: dict[str, object]) -> None:
    try:
        caller = caller_of(claims)
    except BadClaims:
        return
    assert caller.name.isprintable()
    assert len(caller.grants) <= GRANTS_MAX
