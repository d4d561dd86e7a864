"""SaslAuthenticate where it is out of place: on a connection that has no login, or whose login is complete.

Source: Kafka's KafkaApis.handleSaslAuthenticateRequest.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from trio_broker.handlers.support.context import Context
from trio_broker.handlers.support.registry import handles
from trio_broker.handlers.support.rights import NoRight


def error_response(request: SaslAuthenticateRequest, error: KafkaError) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error.code, error_message=str(error), auth_bytes=b"")


@handles(SaslAuthenticateRequest, error_response=error_response, requires=[NoRight("it is always refused here")])
async def sasl_authenticate(request: SaslAuthenticateRequest, context: Context) -> SaslAuthenticateResponse:
    """Refuse it: no token is expected here."""
    text = "SaslAuthenticate request received after successful authentication"
    raise KafkaError(text, code=ErrorCode.ILLEGAL_SASL_STATE)
