"""Times as HTTP shows them: RFC 3339 in UTC, to the millisecond."""

from datetime import UTC, datetime


def rfc3339(ms: int) -> str:
    """Milliseconds since the epoch, such as 2026-01-31T23:59:59.999Z."""
    seconds, millis = divmod(ms, 1000)
    when = datetime.fromtimestamp(seconds, UTC)
    return f"{when:%Y-%m-%dT%H:%M:%S}.{millis:03d}Z"
