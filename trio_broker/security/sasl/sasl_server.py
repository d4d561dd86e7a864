"""The server's half of a mechanism: what one authentication has to do with tokens.

Source: javax.security.sasl.SaslServer, as Kafka implements it.
"""

from __future__ import annotations

from typing import Protocol

import attrs


class SaslFailure(Exception):
    """The client is not who it says. The text is for the log, and has no secret in it.

    ``for_client`` is what the client learns of it, None for no more than that its credentials are wrong: a reason might
    tell anybody which users there are.
    """

    def __init__(self, reason: str, *, for_client: str | None = None) -> None:
        super().__init__(reason)
        self.for_client = for_client


@attrs.frozen
class Identity:
    """Whom a client has proved to be, and until when its credential is valid, in milliseconds since 1970.

    ``by_token`` says that the credential is a delegation token, by which no other one is had.
    """

    user: str
    expires_at_ms: int | None = None
    by_token: bool = False


@attrs.frozen
class Evaluation:
    """The token for the client, and who it is once the last of its tokens has proved it.

    ``refusal`` is why its credential was refused, where the mechanism wants that acknowledged before it fails.
    """

    token: bytes
    identity: Identity | None = None
    refusal: str = ""


class SaslServer(Protocol):
    """One authentication of one client."""

    def evaluate(self, token: bytes) -> Evaluation:
        """Take the client's next token. Not called again once it has failed or is complete.

        Raises:
            SaslFailure: the client is not authenticated.
        """
        ...
