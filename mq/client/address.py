"""Where mq is, as it is said: a URL."""

from urllib.parse import urlsplit, urlunsplit


def whole(url: str) -> str:
    """The URL, of HTTP where it has no scheme: `localhost:8080`."""
    return url if "://" in url else f"http://{url}"


def check(url: str) -> None:
    """Raises ValueError for what is no URL of HTTP."""
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        is_one = is_one and not (parts.query or parts.fragment)
    except ValueError:  # Of a port, of an address in brackets.
        is_one = False
    if not is_one:
        raise ValueError(f"no URL of HTTP, such as http://127.0.0.1:8080: {url!r}")


def shown(url: str) -> str:
    """The URL without what is secret in it."""
    parts = urlsplit(url)
    if parts.username is None and parts.password is None:
        return url
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
