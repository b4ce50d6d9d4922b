"""Who signs tokens: real keys, their JWK set, and a server that hands it out."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jwt
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm
from pytest_aiohttp import AiohttpServer

MAKERS: dict[str, Callable[[], Any]] = {
    "RS256": lambda: rsa.generate_private_key(65537, 2048),
    "PS384": lambda: rsa.generate_private_key(65537, 2048),
    "ES256": lambda: ec.generate_private_key(ec.SECP256R1()),
    "ES512": lambda: ec.generate_private_key(ec.SECP521R1()),
    "EdDSA": ed25519.Ed25519PrivateKey.generate,
}


@dataclass
class SigningKey:
    """A private key, by the name that its tokens have."""

    kid: str | None = "one"
    algorithm: str = "ES256"
    private: Any = None

    def __post_init__(self) -> None:
        self.private = self.private or MAKERS[self.algorithm]()

    def token(self, headers: dict[str, Any] | None = None, **claims: Any) -> str:
        """A token of these claims."""
        named = {} if self.kid is None else {"kid": self.kid}
        return jwt.encode(
            claims, self.private, self.algorithm, headers={**named, **(headers or {})}
        )

    def public(self, **more: Any) -> dict[str, Any]:
        """Its JWK."""
        kind = {"R": RSAAlgorithm, "P": RSAAlgorithm, "ES": ECAlgorithm, "Ed": OKPAlgorithm}
        of = kind.get(self.algorithm[:1]) or kind[self.algorithm[:2]]
        entry: dict[str, Any] = json.loads(of.to_jwk(self.private.public_key()))
        named = {} if self.kid is None else {"kid": self.kid}
        return {**entry, **named, "use": "sig", **more}


def jwk_set(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": entries}).encode()


@dataclass
class Issuer:
    """An HTTP server that hands out a JWK set, fails, or hangs, and counts who asks."""

    body: bytes = b""
    status: int = 200
    hangs: bool = False
    asked: int = 0
    url: str = ""
    _let_go: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self, serve: AiohttpServer) -> None:
        """Serves until the test's end."""
        app = web.Application()
        app.router.add_get("/keys", self._answer)
        app.on_shutdown.append(self._end)
        self.url = str((await serve(app)).make_url("/keys"))

    async def _end(self, app: web.Application) -> None:
        self._let_go.set()

    async def _answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.hangs:
            await self._let_go.wait()
        return web.Response(body=self.body, status=self.status)
