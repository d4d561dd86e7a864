"""Refusing transactions, which this broker does not serve.

The client gets a fatal error, since it would repeat a request after a retriable one for ever. That error speaks of
authorization, so the broker's own log has the true reason.
"""

from __future__ import annotations

from typing import NoReturn

from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from trio_broker.handlers.support.context import Context


def refuse_transactional_id(transactional_id: str, context: Context) -> NoReturn:
    """Refuse a request of a transactional producer, with a throttled line in the log.

    Raises:
        KafkaError: ``TRANSACTIONAL_ID_AUTHORIZATION_FAILED``.
    """
    context.services.throttled_log.warning(
        "transactions",
        f"transactional id {transactional_id!r:.200} of client {context.client_id!r:.200} at"
        f" {context.connection.peer_host} is refused: transactions are not served",
    )
    raise KafkaError("transactions are not served", code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
