"""Tokens as an authority signs them, and the keys that it publishes."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from joserfc import jwt
from joserfc.jwk import ECKey, Key, RSAKey

ISSUER = "https://issuer.example"
AUDIENCE = "kafka.example"


@lru_cache
def key_named(kid: str) -> ECKey:
    """A private key; the same for the same name."""
    return ECKey.generate_key("P-256", {"kid": kid, "use": "sig"})


@lru_cache
def rsa_key(kid: str) -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": kid})


def key_set(*keys: Key) -> bytes:
    """The public half of ``keys``, as an authority publishes it."""
    return json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()


def claims_at(now_ms: int, **changed: Any) -> dict[str, Any]:
    """What a good token says; a change to None leaves the claim out."""
    now = now_ms // 1000
    claims: dict[str, Any] = {"iss": ISSUER, "aud": AUDIENCE, "sub": "alice", "iat": now, "exp": now + 3600, **changed}
    return {name: value for name, value in claims.items() if value is not None}


def signed(claims: Mapping[str, Any], key: Key, algorithm: str = "ES256", **header: Any) -> str:
    return jwt.encode({"alg": algorithm, "kid": key.kid, **header}, dict(claims), key, algorithms=[algorithm])
