"""`/-/` and `/-/page/{asset}`: the operators' page and its files.

The files hold nothing secret, so anyone may read them. The page gets all that it shows over HTTP,
with the rights of its user.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import MappingProxyType
from typing import Final

from mq.http.answers import Answer, problem_answer
from mq.http.request import Request
from mq.http.service import Service
from mq.protocol.conditions import is_known
from mq.protocol.problems import PATH_UNKNOWN

HTML: Final = "text/html; charset=utf-8"
MEDIA_TYPES: Final = MappingProxyType(
    {
        ".css": "text/css; charset=utf-8",
        ".js": "text/javascript; charset=utf-8",
        ".svg": "image/svg+xml",
    }
)
"""By suffix, the files beside the page itself."""

PAGE: Final = "index.html"

_FOLDER: Final = Path(__file__).with_name("files")
_TAG_CHARS: Final = 16
# Only these files run, only this mq is asked, and no other page may frame this one (clickjacking).
_POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self'",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
    )
)
_HEADERS: Final = {
    # Revalidated on each load, so that the files of two versions never mix.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


@dataclass(frozen=True, slots=True)
class Asset:
    media_type: str
    tag: str
    body: bytes


@cache
def assets() -> MappingProxyType[str, Asset]:
    """The files beside the page, by name."""
    found = {
        path.name: _asset(path, MEDIA_TYPES[path.suffix])
        for path in sorted(_FOLDER.iterdir())
        if path.suffix in MEDIA_TYPES
    }
    return MappingProxyType(found)


@cache
def page() -> Asset:
    return _asset(_FOLDER / PAGE, HTML)


def _asset(path: Path, media_type: str) -> Asset:
    body = path.read_bytes()
    return Asset(media_type, f'"{sha256(body).hexdigest()[:_TAG_CHARS]}"', body)


def read(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of `/-/`: the page."""
    return _answer(request, page())


def read_asset(service: Service, request: Request, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of a file of the page; 404 if there is none of that name."""
    asset = assets().get(path["asset"])
    return problem_answer(PATH_UNKNOWN) if asset is None else _answer(request, asset)


def _answer(request: Request, asset: Asset) -> Answer:
    headers = {**_HEADERS, "ETag": asset.tag}
    if is_known(request.headers.getall("If-None-Match", []), asset.tag):
        return Answer(304, headers)
    return Answer(200, {**headers, "Content-Type": asset.media_type}, asset.body)
