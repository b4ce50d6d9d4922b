"""`/-/` and `/-/page/{asset}`: the page, and what it is made of.

Nothing of it is secret, nor any queue's: so it is there for everybody, and all that it shows it
asks for by the interface, as who looks at it may.
"""

from collections.abc import Mapping
from typing import Final

from aiohttp import web

from mq.http.answers import Answer
from mq.http.page.assets import Asset, assets, page
from mq.http.problems import problem_answer
from mq.http.service import Service
from mq.protocol.etags import is_known
from mq.protocol.problems import PATH_UNKNOWN

# Nothing runs but these files, nothing is asked but this mq, and no page of others has it in a
# frame, where people would click without knowing on what.
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
    # Asked for again each time, and sent where it is another: never the files of two versions.
    "Cache-Control": "no-cache",
    "Content-Security-Policy": _POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


async def read(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of `/-/`: the page."""
    return _answer(request, page())


async def read_asset(service: Service, request: web.BaseRequest, path: Mapping[str, str]) -> Answer:
    """GET or HEAD of a file of the page's: 404 where there is none of that name."""
    asset = assets().get(path["asset"])
    return problem_answer(PATH_UNKNOWN) if asset is None else _answer(request, asset)


def _answer(request: web.BaseRequest, asset: Asset) -> Answer:
    headers = {**_HEADERS, "ETag": asset.tag}
    if is_known(request.headers.getall("If-None-Match", []), asset.tag):
        return Answer(304, headers)
    return Answer(200, {**headers, "Content-Type": asset.media_type}, asset.body)
