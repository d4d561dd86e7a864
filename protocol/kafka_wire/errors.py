"""The two ways in which a conversation goes wrong.

``WireError`` says that the bytes are not Kafka's: nothing after them can be trusted, so the connection closes.
``KafkaError`` says that we understood and refuse, and that the protocol has a word for it: the word is ``code``, and it
travels back in the answer.
"""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode


class WireError(Exception):
    """The bytes are not Kafka's."""


class KafkaError(Exception):
    """An expected refusal, with the error code that tells the client.

    Subclasses set ``code`` as a class attribute; a single raise may name another one. The text is for our log and for
    those answers that have room for a message.
    """

    code: ErrorCode = ErrorCode.UNKNOWN_SERVER_ERROR

    def __init__(self, message: str = "", *, code: ErrorCode | None = None) -> None:
        super().__init__(message)
        if code is not None:
            self.code = code
