"""AWS's signature, version 4: of a request's headers, or of a URL. Pure.

The access key id is a token's name. Region, service and date are the signer's, who says them in the
credential's scope. The body's digest is always its own: SQS has no unsigned bodies.
"""

import hashlib
import hmac
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import parse_qsl, quote, unquote_to_bytes

from mq.sqs.errors import SqsError

SKEW_S_MAX: Final = 15 * 60
URL_S_MAX: Final = 7 * 24 * 3600
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_TIME: Final = "%Y%m%dT%H%M%SZ"
_SERVICE: Final = "sqs"
_FIELDS: Final = re.compile(r"([A-Za-z]+)=([^,\s]+)")
_SECONDS: Final = re.compile("[1-9][0-9]{0,5}")
_SPACES: Final = re.compile(" +")


@dataclass(frozen=True, slots=True)
class Signed:
    """A request as its signature covers it."""

    method: str
    path: str
    """As it was sent, undecoded."""
    query: str
    headers: Mapping[str, str]
    """By names in lower case."""
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Signature:
    """What a request says of its signature."""

    access_key: str
    scope: tuple[str, str, str]
    """The date, the region and the service."""
    headers: tuple[str, ...]
    text: str
    made: datetime
    lasts_s: int
    is_in_url: bool


def _incomplete(message: str) -> SqsError:
    return SqsError("IncompleteSignatureException", message)


def _wrong(message: str) -> SqsError:
    return SqsError("InvalidSignatureException", message)


def signature_of(request: Signed) -> Signature | None:
    """The request's signature; None: it has none. Raises SqsError for a malformed one."""
    header = request.headers.get("authorization", "")
    if header.startswith(_ALGORITHM):
        fields = dict(_FIELDS.findall(header.removeprefix(_ALGORITHM)))
        made = request.headers.get("x-amz-date", "")
        names = ("Credential", "SignedHeaders", "Signature")
        lasts_s, is_in_url = SKEW_S_MAX, False
    else:
        fields = dict(parse_qsl(request.query, keep_blank_values=True))
        if fields.get("X-Amz-Algorithm") != _ALGORITHM:
            return None
        made = fields.get("X-Amz-Date", "")
        names = ("X-Amz-Credential", "X-Amz-SignedHeaders", "X-Amz-Signature")
        expires = fields.get("X-Amz-Expires", "")
        if _SECONDS.fullmatch(expires) is None or int(expires) > URL_S_MAX:
            raise _incomplete("X-Amz-Expires must be 1 to 604800 seconds.")
        lasts_s, is_in_url = int(expires), True
    credential, headers, text = (fields.get(name, "") for name in names)
    access_key, *scope = credential.rsplit("/", 4)
    is_whole = access_key and headers and text and credential.isascii()
    if not is_whole or len(scope) != 4 or scope[3] != "aws4_request":
        raise _incomplete(
            "Authorization must have Credential, SignedHeaders and Signature, and a URL the "
            "parameters of these names that begin with X-Amz-."
        )
    try:
        at = datetime.strptime(made, _TIME).replace(tzinfo=UTC)
    except ValueError:
        raise _incomplete("X-Amz-Date must be a time such as 20260131T235959Z.") from None
    day, region, service, _ = scope
    return Signature(
        access_key,
        (day, region, service),
        tuple(headers.lower().split(";")),
        text,
        at,
        lasts_s,
        is_in_url,
    )


def check_time(found: Signature, now: datetime) -> None:
    """Raises SqsError for a signature of another time, day or service."""
    day, _, service = found.scope
    if service != _SERVICE or day != found.made.strftime("%Y%m%d"):
        raise _wrong("Credential should be scoped to the service 'sqs' and the day of X-Amz-Date.")
    age_s = (now - found.made).total_seconds()
    made, at = (f"{each:{_TIME}}" for each in (found.made, now))
    if age_s < -SKEW_S_MAX:
        latest = f"{now + timedelta(seconds=SKEW_S_MAX):{_TIME}}"
        raise _wrong(
            f"Signature not yet current: {made} is still later than {latest} ({at} + 15 min.)"
        )
    if age_s > found.lasts_s and found.is_in_url:
        raise SqsError("RequestExpired", f"Request has expired. It was signed at {made}, for "
                       f"{found.lasts_s} s; it is {at}.")  # fmt: skip
    if age_s > found.lasts_s:
        earliest = f"{now - timedelta(seconds=SKEW_S_MAX):{_TIME}}"
        raise _wrong(f"Signature expired: {made} is now earlier than {earliest} ({at} - 15 min.)")


def check(request: Signed, found: Signature, secret: str) -> None:
    """Raises SqsError unless the signature is of this whole request, by this secret."""
    for name in ("host", "x-amz-target"):
        # One who overhears a request must not send another operation with its signature.
        if name not in found.headers and (name == "host" or name in request.headers):
            raise _wrong(f"'{name}' must be a 'SignedHeader' in the AWS Authorization.")
    if not hmac.compare_digest(expected(request, found, secret).encode(), _bytes(found.text)):
        raise _wrong(
            "The request signature we calculated does not match the signature you provided. Check "
            "your AWS Secret Access Key and signing method. Consult the service documentation for "
            "details."
        )


def expected(request: Signed, found: Signature, secret: str) -> str:
    """The signature that the holder of the secret makes."""
    day, region, service = found.scope
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    to_sign = "\n".join(
        (
            _ALGORITHM,
            found.made.strftime(_TIME),
            "/".join((*found.scope, "aws4_request")),
            hashlib.sha256(_bytes(_canonical(request, found))).hexdigest(),
        )
    )
    return hmac.new(key, to_sign.encode(), "sha256").hexdigest()


def _canonical(request: Signed, found: Signature) -> str:
    headers = "".join(
        "{}:{}\n".format(name, _folded(request.headers.get(name, ""))) for name in found.headers
    )
    return "\n".join(
        (
            request.method,
            quote(_bytes(request.path), safe="/-_.~"),
            _canonical_query(request.query, found.is_in_url),
            headers,
            ";".join(found.headers),
            hashlib.sha256(request.body).hexdigest(),
        )
    )


def _canonical_query(query: str, is_in_url: bool) -> str:
    """The parameters in order, escaped in one way. A plus is a plus here: signers escape spaces."""
    pairs = [each.partition("=") for each in query.split("&") if each]
    escaped = sorted((_escaped(name), _escaped(value)) for name, _, value in pairs)
    return "&".join(
        f"{name}={value}"
        for name, value in escaped
        if not (is_in_url and name == "X-Amz-Signature")
    )


def _escaped(text: str) -> str:
    return quote(unquote_to_bytes(_bytes(text)), safe="-_.~")


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _folded(value: str) -> str:
    return _SPACES.sub(" ", value.strip())
