"""The files of the page: read once, each with its media type and its entity tag."""

from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

HTML: Final = "text/html; charset=utf-8"
MEDIA_TYPES: Final = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)
"""By a name's end: what the page is made of, beside itself."""

PAGE: Final = "index.html"

_FOLDER: Final = Path(__file__).with_name("files")
_TAG_CHARS: Final = 16


@dataclass(frozen=True, slots=True)
class Asset:
    """A file as it is sent."""

    media_type: str
    tag: str
    """Another whenever the file is."""
    body: bytes


@cache
def assets() -> MappingProxyType[str, Asset]:
    """Those beside the page, by name."""
    found = {
        path.name: _asset(path, MEDIA_TYPES[path.suffix])
        for path in sorted(_FOLDER.iterdir())
        if path.suffix in MEDIA_TYPES
    }
    return MappingProxyType(found)


@cache
def page() -> Asset:
    """The page itself."""
    return _asset(_FOLDER / PAGE, HTML)


def _asset(path: Path, media_type: str) -> Asset:
    body = path.read_bytes()
    return Asset(media_type, f'"{sha256(body).hexdigest()[:_TAG_CHARS]}"', body)
