"""What is said of the page at `/-/`, and of the files that it is made of."""

from typing import Final

from mq.http.openapi.described import Content, Described, Success
from mq.http.page.assets import HTML, MEDIA_TYPES, assets
from mq.protocol.query import Schema

SCHEMAS: Final[dict[str, Schema]] = {"AssetName": {"type": "string", "enum": [*assets()]}}

_HEADERS: Final = ("Cache-Control", "ETag", "X-Content-Type-Options")
_KNOWN: Final = Success(304, "The client has it.", headers=_HEADERS)


def _contents(*media_types: str) -> dict[str, Content]:
    """Without their parameters."""
    return {each.partition(";")[0]: Content() for each in media_types}


DESCRIBED: Final = {
    ("GET", "/-/"): Described(
        "read_page",
        "The page for people, which shows the queues and acts on them by this interface.",
        (Success(200, "HTML.", _contents(HTML), _HEADERS), _KNOWN),
        is_stored=False,
    ),
    ("GET", "/-/page/{asset}"): Described(
        "read_page_asset",
        "A file that the page is made of.",
        (Success(200, "The file.", _contents(*MEDIA_TYPES.values()), _HEADERS), _KNOWN),
        is_stored=False,
    ),
}
