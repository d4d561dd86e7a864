"""The two errors of the protocol.

``WireError``: the bytes are malformed. Nothing after them can be trusted, so the connection closes.
``KafkaError``: the request is understood and refused. Its ``code`` is one of the protocol's and part of the answer.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode

MAX_MESSAGE_CHARACTERS = 4096
"""Of the text of a refusal. Many repeat what the client sent, and with their own words around it a name of 32 KB would
be too long for a string of an answer."""


class WireError(Exception):
    """The bytes are not Kafka's."""


class KafkaError(Exception):
    """An expected refusal, with the error code that tells the client.

    Subclasses set ``code`` as a class attribute; a single raise may name another one. The text is for our log and for
    those answers that have room for a message.
    """

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "", *, code: ErrorCode | None = None) -> None:
        if len(message) > MAX_MESSAGE_CHARACTERS:
            message = message[: MAX_MESSAGE_CHARACTERS - 1] + "…"
        super().__init__(message)
        if code is not None:
            self.code = code
