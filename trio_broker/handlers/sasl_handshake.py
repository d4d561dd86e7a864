"""SaslHandshake where it is out of place: on a connection that has no login, or has one that is a moment old.

Those that are in place are answered by the connection's ``SaslServerAuthenticator``.

Source: Kafka's KafkaApis.handleSaslHandshakeRequest.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import NoRight


def error_response(request: SaslHandshakeRequest, error: KafkaError) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=error.code, mechanisms=[])


@handles(SaslHandshakeRequest, error_response=error_response, requires=[NoRight("it is always refused here")])
async def sasl_handshake(request: SaslHandshakeRequest, context: Context) -> SaslHandshakeResponse:
    """Refuse it: nothing is to be chosen here."""
    raise KafkaError(code=ErrorCode.ILLEGAL_SASL_STATE)
