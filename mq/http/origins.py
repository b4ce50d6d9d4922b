"""What pages of other origins may not have a browser do.

A browser lets any page of the web send requests to anywhere, also to an mq that listens on the
loopback address of who looks at it, or that knows them by their certificate. That page cannot read
the answers, but what the requests change is changed. So browsers say of each request where it comes
from; nothing else does.
"""

from typing import Final
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from mq.access.bearer import token_of
from mq.http.access import Access
from mq.protocol.consume.errors import ForeignOrigin

_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_SITE: Final = "Sec-Fetch-Site"
_OWN: Final = {"same-origin", "none"}
"""A page of this mq; or nobody's page, but what a person typed."""


def refuse_foreign(access: Access, request: web.BaseRequest) -> None:
    """Raises ForeignOrigin for a request that changes something and that a page of another origin
    has sent. Who shows a token that is asked for is believed: no browser adds that by itself. A
    name and a password (`Basic`) it does add, and who calls is the certificate then.
    """
    if access.is_on and token_of(request.headers.getall(hdrs.AUTHORIZATION, ())) is not None:
        return
    site = request.headers.get(_SITE)
    if is_foreign(request) if site is None else site not in _OWN:
        raise ForeignOrigin


def is_foreign(request: web.BaseRequest) -> bool:
    """Whether the Origin that a request tells of is another than that which it was sent to."""
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None:
        return False
    try:
        said = urlsplit(origin)
    except ValueError:
        return True  # What is no URL is no origin of this mq.
    # A browser leaves it out; a proxy may put it into the Host that it passes on.
    port = _DEFAULT_PORTS.get(said.scheme, "")
    return said.netloc.lower() != request.host.lower().removesuffix(port)
