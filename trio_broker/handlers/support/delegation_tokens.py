"""Who may ask about delegation tokens at all, and what answers say.

Source: Kafka's KafkaApis.allowTokenRequests; KIP-48.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.security.kafka_principal import ANONYMOUS, KafkaPrincipal

REQUESTER_SINCE_VERSION: Final = 3
"""Of the APIs that create and describe tokens: answers say who has asked for a token, which need not be its owner."""


def require_token_requests(principal: KafkaPrincipal) -> None:
    """Refuse a client that has not proved who it is, or by a delegation token alone: one that was stolen would have
    itself replaced for ever.

    Raises:
        KafkaError: DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.
    """
    if principal == ANONYMOUS or principal.token_authenticated:
        by = "by a delegation token" if principal.token_authenticated else "without a login"
        text = f"delegation tokens are for clients with a credential of their own, and this one is here {by}"
        raise KafkaError(text, code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED)
