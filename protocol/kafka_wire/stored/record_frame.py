"""The frame of a coordinator's records: an int16 before the key and before the value, each followed by a message.

Before the key stands the type of the record, before the value the version of the value.

Source: Kafka's CoordinatorRecordSerde.
"""

from __future__ import annotations

from typing import Final

from kafka_wire.errors import WireError

INT16_BYTES: Final = 2
"""Of the type before a key, and of the version before a value."""


def with_int16(number: int, data: bytes) -> bytes:
    return number.to_bytes(INT16_BYTES, "big") + data


def leading_int16(data: bytes | memoryview, what: str) -> int:
    """The number before a key or a value, which ``what`` names.

    Raises:
        WireError: there is none.
    """
    if len(data) < INT16_BYTES:
        raise WireError(f"{what} of {len(data)} bytes has no version")
    return int.from_bytes(data[:INT16_BYTES], "big", signed=True)
