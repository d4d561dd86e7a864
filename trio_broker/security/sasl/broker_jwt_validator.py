"""Decides whether a token of OAUTHBEARER is valid: a JWT that its issuer has signed for this cluster, and not over.

Signatures of public keys are taken alone: what is not signed, or by a shared secret, is refused by its algorithm.

Source: Kafka's BrokerJwtValidator; RFC 7519, 8725.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import attrs
from joserfc import jwt
from joserfc.errors import InvalidKeyIdError, JoseError
from joserfc.jws import JWSRegistry
from joserfc.jwt import JWTClaimsRegistry
from joserfc.registry import JWS_HEADER_REGISTRY

from kafka_wire.limits import INT64_MAX
from trio_broker.runtime.clock import Clock
from trio_broker.security.sasl.oauthbearer import MAX_TOKEN_BYTES, InvalidToken
from trio_broker.security.sasl.sasl_server import Identity
from trio_broker.security.sasl.verification_keys import VerificationKeys

ALGORITHMS: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512")
"""All of public keys."""

MAX_HEADER_BYTES: Final = 8 * 1024
"""Of the first part, which is read before the signature is known; a chain of certificates may be in it."""

REASON_CHARACTERS: Final = 200
"""Of a reason in the log: it may repeat the algorithm or key that anybody has named."""


class _Registry(JWSRegistry):
    """What a header may have; nothing else changes what its signature means, so nothing critical is understood."""

    default_header_registry = {name: each for name, each in JWS_HEADER_REGISTRY.items() if name != "b64"}
    max_header_length = MAX_HEADER_BYTES
    max_payload_length = MAX_TOKEN_BYTES


@attrs.frozen(kw_only=True)
class BrokerJwtValidator:
    """``audience`` has the names of this cluster, of which a token has to be for one; ``issuer`` is who issues them.
    The user is what ``sub_claim_name`` says. ``clock_skew_seconds`` is by how much the clocks of both may differ."""

    keys: VerificationKeys
    clock: Clock
    audience: Sequence[str]
    issuer: str
    sub_claim_name: str
    clock_skew_seconds: int

    def __attrs_post_init__(self) -> None:
        # An empty one would be no condition.
        assert self.audience, "an audience is expected"
        assert self.issuer, "an issuer is expected"

    def validate(self, token: str) -> Identity:
        """Return whom ``token`` is for, and when it ends.

        Raises:
            InvalidToken: it is not valid, now, here.
        """
        if len(token) > MAX_TOKEN_BYTES:
            raise InvalidToken(f"the token has {len(token)} bytes, more than {MAX_TOKEN_BYTES}")
        try:
            claims = self._claims(token)
            return Identity(self._subject(claims), min(INT64_MAX, int(claims["exp"]) * 1000))
        except InvalidKeyIdError as error:
            self.keys.refresh_soon()
            raise InvalidToken(_reason(error)) from None
        except InvalidToken:
            raise
        except Exception as error:
            # Whatever a library makes of bytes of anybody, they are no token.
            raise InvalidToken(_reason(error)) from None

    def _claims(self, token: str) -> dict[str, Any]:
        registry = _Registry(algorithms=ALGORITHMS, strict_check_header=False)
        claims = jwt.decode(token, self.keys.keys, algorithms=ALGORITHMS, registry=registry).claims
        JWTClaimsRegistry(
            now=self.clock.now_ms() // 1000,
            leeway=self.clock_skew_seconds,
            exp={"essential": True},
            iat={"essential": True},
            iss={"essential": True, "value": self.issuer},
            aud={"essential": True, "values": list(self.audience)},
        ).validate(claims)
        return claims

    def _subject(self, claims: dict[str, Any]) -> str:
        subject = claims.get(self.sub_claim_name)
        if not isinstance(subject, str) or not subject.strip():
            raise InvalidToken(f"the token says no user by its claim {self.sub_claim_name!r}")
        return subject.strip()


def _reason(error: Exception) -> str:
    if not isinstance(error, JoseError):
        return f"the token is no JWT ({type(error).__name__})"
    return f"invalid token: {error}"[:REASON_CHARACTERS]
