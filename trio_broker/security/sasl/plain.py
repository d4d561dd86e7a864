"""PLAIN: the client sends its name and password as they are (RFC 4616), so it is for connections that are encrypted.

Source: Kafka's PlainSaslServer and PlainServerCallbackHandler.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Final

import attrs

from trio_broker.security.sasl.sasl_server import Evaluation, Identity, SaslFailure

NAME: Final = "PLAIN"

NOBODY: Final = ""
"""The password of a user who does not exist; a client cannot send it."""


@attrs.frozen
class PlainSaslServer:
    """Checks a password against ``passwords``, by user."""

    passwords: Mapping[str, str] = attrs.field(repr=False)

    def evaluate(self, token: bytes) -> Evaluation:
        """Take the only token."""
        try:
            parts = token.decode().split("\0")
        except UnicodeDecodeError:
            raise SaslFailure("the token of PLAIN is not UTF-8") from None
        if len(parts) != 3:
            for_client = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise SaslFailure(for_client, for_client=for_client)
        authorization_id, user, password = parts
        for part, name in ((user, "username"), (password, "password")):
            if not part:
                for_client = f"Authentication failed: {name} not specified"
                raise SaslFailure(for_client, for_client=for_client)
        # In a time that does not say how much of it is right.
        if not hmac.compare_digest(self.passwords.get(user, NOBODY).encode(), password.encode()):
            what = "wrong password" if user in self.passwords else "no such user"
            raise SaslFailure(f"{what}: {user!r}", for_client="Authentication failed: Invalid username or password")
        require_own_name(authorization_id, user)
        return Evaluation(b"", Identity(user))


def require_own_name(authorization_id: str, user: str) -> None:
    """Refuse a client that wants to act as another user than the one whose secret it has.

    Raises:
        SaslFailure: it does.
    """
    if authorization_id not in ("", user):
        for_client = "Authentication failed: Client requested an authorization id that is different from username"
        raise SaslFailure(f"{for_client}: {user!r} as {authorization_id!r}", for_client=for_client)
