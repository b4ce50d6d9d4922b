"""Public keys that verify tokens: a JWK set (RFC 7517), and where it comes from.

Needs the extra `jwt`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

import jwt

from mq.access.trusted_file import Untrusted, read_trusted
from mq.model.limits import KIB
from mq.model.log import logger

JWKS_BYTES_MAX: Final = 256 * KIB
JWKS_KEYS_MAX: Final = 100
RSA_BITS_MIN: Final = 2048

_log = logger("mq.access")

_RSA: Final[tuple[str, ...]] = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_OF_CURVE: Final[Mapping[str, tuple[str, ...]]] = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
}
ALGORITHMS: Final = frozenset(_RSA).union(*_OF_CURVE.values())
"""The accepted algorithms: asymmetric ones only."""
_PUBLIC: Final = ("kty", "n", "e", "crv", "x", "y")


class BadKeys(ValueError):
    """Not a JWK set with a usable key; the text says why."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """One key. `kid`: its id in the set. `algorithms`: the algorithms that it may verify."""

    kid: str | None
    algorithms: frozenset[str]
    key: Any


class Keys(Protocol):
    """The source of a verifier's keys."""

    def known(self) -> tuple[PublicKey, ...]:
        """The last good keys: a new object whenever they change. Does not block."""

    def missed(self) -> None:
        """Reports that a token names an unknown key: the keys may have changed. Does not block."""


def parse_keys(data: bytes) -> tuple[PublicKey, ...]:
    """The keys of a JWK set that can verify tokens; others are ignored. Of a private key only the
    public part is used. Raises BadKeys.
    """
    if len(data) > JWKS_BYTES_MAX:
        raise BadKeys(f"more than {JWKS_BYTES_MAX} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise BadKeys("not JSON") from None
    entries = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise BadKeys("not a JWK set, which is an object with a list `keys`")
    if len(entries) > JWKS_KEYS_MAX:
        raise BadKeys(f"more than {JWKS_KEYS_MAX} keys")
    keys = tuple(key for entry in entries if (key := _key(entry)) is not None)
    if not keys:
        raise BadKeys("no key that can verify tokens (RSA of 2048 bits, EC, Ed25519)")
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
    """The algorithms that fit the key's kind, narrowed by its own `alg`."""
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
    """Keys of a file, read on creation and on `reload`. Raises BadKeys."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._keys = _read(path)

    def known(self) -> tuple[PublicKey, ...]:
        return self._keys

    def missed(self) -> None:
        """Nothing to do: the operator reloads a changed file."""

    def start(self) -> None:
        """Nothing runs in the background."""

    async def stop(self) -> None:
        """Nothing runs in the background."""

    def reload(self) -> bool:
        """Reads the file again, blocking; false, and the old keys stay, if it is invalid."""
        try:
            self._keys = _read(self._path)
        except BadKeys as error:
            _log.error(
                "keys not reloaded; the old ones stay", extra={"fields": {"error": str(error)}}
            )
            return False
        return True


def _read(path: Path) -> tuple[PublicKey, ...]:
    try:
        return parse_keys(read_trusted(path, JWKS_BYTES_MAX))
    except (Untrusted, BadKeys) as error:
        raise BadKeys(f"{path}: {error}") from None
