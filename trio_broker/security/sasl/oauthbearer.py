"""OAUTHBEARER: the client sends a token that another authority has signed (RFC 7628).

A token that is refused is answered with the reason's name in JSON; the client sends one byte in return, and then learns
that it has failed. Extensions that it sends beside the token are understood and grant nothing, as in Kafka.

Source: Kafka's OAuthBearerSaslServer and OAuthBearerClientInitialResponse.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

import attrs

from trio_broker.security.sasl.sasl_server import Evaluation, Identity, SaslFailure

NAME: Final = "OAUTHBEARER"

MAX_TOKEN_BYTES: Final = 64 * 1024
"""Of a token with some thousand groups of its user. Those that are not ours cost their bytes alone."""

INVALID_TOKEN: Final = '{"status":"invalid_token"}'
"""What a client learns of any reason, as in Kafka."""

_FIRST: Final = re.compile(
    rb"n,(?:a=(?P<authzid>(?:[\x02-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+))?,\x01"
    rb"(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)+)\x01"
)

_BEARER: Final = re.compile(rb"(?i:bearer) +(?P<token>[-_~+/.a-zA-Z0-9]+=*)")


class InvalidToken(Exception):
    """The token is none that this broker takes. The text says why, and has nothing secret of it."""


ValidateToken = Callable[[str], Identity]
"""Returns whom a token is for, and until when; raises InvalidToken."""


@attrs.define
class OAuthBearerSaslServer:
    """Has a token checked by ``validate``."""

    validate: ValidateToken
    _refusal: str = ""
    """Why the token was refused; empty before that."""

    def evaluate(self, token: bytes) -> Evaluation:
        """Take the first token, or what acknowledges that it was refused."""
        if self._refusal:
            raise SaslFailure(self._refusal, for_client=INVALID_TOKEN)
        authorization_id, bearer = parse_initial_response(token)
        try:
            identity = self.validate(bearer)
        except InvalidToken as error:
            self._refusal = f"{error}"
            return Evaluation(INVALID_TOKEN.encode(), refusal=self._refusal)
        if authorization_id not in ("", identity.user):
            for_client = (
                "Authentication failed: Client requested an authorization id that is different from the token's"
                " principal name"
            )
            raise SaslFailure(f"{for_client}: {identity.user!r} as {authorization_id!r}", for_client=for_client)
        return Evaluation(b"", identity)


def parse_initial_response(response: bytes) -> tuple[str, str]:
    """Return as whom the client wants to act, empty for whom the token is for, and the token.

    Raises:
        SaslFailure: it is not of that form. The text has nothing of it.
    """
    found = _FIRST.fullmatch(response)
    if found is None:
        raise SaslFailure("the token is not of OAUTHBEARER")
    pairs = dict(pair.split(b"=", 1) for pair in found["pairs"].rstrip(b"\x01").split(b"\x01"))
    bearer = _BEARER.fullmatch(pairs.get(b"auth", b""))
    if bearer is None:
        raise SaslFailure("the token of OAUTHBEARER has no bearer token")
    authorization_id = (found["authzid"] or b"").decode().replace("=2C", ",").replace("=3D", "=")
    return authorization_id, bearer["token"].decode()
