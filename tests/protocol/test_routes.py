"""Paths to handlers: segments are decoded after the split, and one by one."""

import pytest

from mq.http.dispatcher import ROUTES
from mq.model.errors import BadName
from mq.protocol.routes import Routes

ROUTER = Routes(ROUTES)


@pytest.mark.parametrize(
    ("path", "pattern", "values"),
    [
        ("/orders", "/{queue}", {"queue": "orders"}),
        ("/orders/messages", "/{queue}/messages", {"queue": "orders"}),
        ("/a%2Fb/messages", "/{queue}/messages", {"queue": "a/b"}),
        ("/a/messages/x%00", "/{queue}/messages/{id}", {"queue": "a", "id": "x\x00"}),
        ("/", "/", {}),
        # Of a target in absolute form without a path: RFC 9112, 3.2.2.
        ("", "/", {}),
        ("/-/livez", "/-/livez", {}),
        ("/-/", "/-/", {}),
        ("/-/page/main.js", "/-/page/{asset}", {"asset": "main.js"}),
    ],
)
def test_a_path_finds_its_route(path: str, pattern: str, values: dict[str, str]) -> None:
    found = ROUTER.find(path)
    assert found is not None
    assert (found[0].pattern, found[1]) == (pattern, values)


@pytest.mark.parametrize(
    "path", ["//", "/-", "/-/x", "/-/page/", "/a/", "/a/b", "/a/messages/", "/a/messages/b/c"]
)
def test_other_paths_lead_nowhere(path: str) -> None:
    assert ROUTER.find(path) is None


def test_a_segment_that_is_no_utf_8_is_a_bad_name() -> None:
    with pytest.raises(BadName) as raised:
        ROUTER.find("/%FF")
    assert raised.value.parameter == "queue"
