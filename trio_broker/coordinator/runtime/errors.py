"""A request that a group refuses, on its way to becoming the answer."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode


class GroupRequestError(Exception):
    """The request is answered with ``code``, and with the message where the response has room for one.

    Never leaves the coordinator's state machines.
    """

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
