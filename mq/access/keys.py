"""Public keys that tokens are signed for: a JWK set (RFC 7517), and where one comes from.

Needs the extra `jwt`.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import jwt

from mq.access.trusted_file import Untrusted, read_trusted
from mq.model.serving_limits import JWKS_BYTES_MAX, JWKS_KEYS_MAX, RSA_BITS_MIN

_log = logging.getLogger("mq.access")

_RSA: Final[tuple[str, ...]] = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE: Final[Mapping[str, tuple[str, ...]]] = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}
ALGORITHMS: Final = frozenset(_RSA).union(*_OF_CURVE.values())
"""All that a token may be signed with: asymmetric ones."""
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")


class BadKeys(ValueError):
    """No JWK set that holds a key of use; the text says why."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One key. `kid`: its name among others; `algorithms`: what it may have signed with."""

    kid: str | None
    algorithms: frozenset[str]
    key: Any


class Keys(Protocol):
    """Where a verifier's keys are."""

    def known(self) -> tuple[PublicKey, ...]:
        """The last good ones: another object when they are others. Does not block."""

    def missed(self) -> None:
        """A token names a key that is not among them: they may have changed. Does not block."""


def parse_keys(data: bytes) -> tuple[PublicKey, ...]:
    """The keys of a JWK set that tokens can be signed for; others in it are passed over, and of a
    private one the public part is taken. Raises BadKeys.
    """
    if len(data) > JWKS_BYTES_MAX:
        raise BadKeys(f"more than {JWKS_BYTES_MAX} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise BadKeys("no JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise BadKeys("no JWK set: an object with a list `keys`")
    if len(entries) > JWKS_KEYS_MAX:
        raise BadKeys(f"more than {JWKS_KEYS_MAX} keys")
    keys = tuple(key for entry in entries if (key := _key(entry)) is not None)
    if not keys:
        raise BadKeys("no key in it that tokens can be signed for (RSA, EC, Ed25519)")
    return keys


def _key(entry: object) -> PublicKey | None:
    if not isinstance(entry, dict) or entry.get("use", "sig") != "sig":
        return None
    operations = entry.get("key_ops", ["verify"])
    if not isinstance(operations, list) or "verify" not in operations:
        return None
    algorithms = _algorithms(entry)
    kid = entry.get("kid")
    if not algorithms or not (kid is None or isinstance(kid, str)):
        return None
    public = {name: entry[name] for name in _PUBLIC if name in entry}
    try:
        key = jwt.PyJWK(public, algorithm=min(algorithms)).key
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        return None
    if entry["kty"] == "RSA" and key.key_size < RSA_BITS_MIN:
        return None
    return PublicKey(kid, algorithms, key)


def _algorithms(entry: Mapping[str, object]) -> frozenset[str]:
    """What fits the key's kind, narrowed to what it says itself."""
    match entry.get("kty"):
        case "RSA":
            fitting = _RSA
        case "EC" | "OKP":
            fitting = _OF_CURVE.get(str(entry.get("crv")), ())
        case _:
            return frozenset()
    said = entry.get("alg")
    return frozenset(fitting) if said is None else frozenset(fitting) & {str(said)}


class FileKeys:
    """Keys of a file, read when it is made and when it is told to. Raises BadKeys."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys = _read(path)

    def known(self) -> tuple[PublicKey, ...]:
        """See Keys."""
        return self._keys

    def missed(self) -> None:
        """See Keys: whoever changes the file says so."""

    def start(self) -> None:
        """Nothing goes on beside."""

    async def stop(self) -> None:
        """Nothing went on beside."""

    def reload(self) -> bool:
        """Reads the file again, blocking; false, and the keys stay, when it is no good."""
        try:
            self._keys = _read(self._path)
        except BadKeys as error:
            _log.error("keys stay as they were", extra={"fields": {"error": str(error)}})
            return False
        return True


def _read(path: Path) -> tuple[PublicKey, ...]:
    try:
        return parse_keys(read_trusted(path, JWKS_BYTES_MAX))
    except (Untrusted, BadKeys) as error:
        raise BadKeys(f"{path}: {error}") from None
