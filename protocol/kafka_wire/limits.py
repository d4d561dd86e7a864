"""The largest values that the protocol's types have room for, and what Kafka therefore ends at.

Constants alone, so that commands and pages which check what they are given need nothing else of the wire.
"""

from __future__ import annotations

from typing import Final

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)

MAX_VARINT_BYTES: Final = 5
"""A 32-bit number needs no more; a longer one is an attack or garbage, so reading stops there."""

MAX_VARLONG_BYTES: Final = 10
"""64 bits in groups of seven."""

MAX_STRING_BYTES: Final = INT16_MAX
"""Kafka's limit for every string: what the int16 length of the older versions can say."""

MAX_PARTITION: Final = INT32_MAX
MAX_PARTITION_COUNT: Final = INT32_MAX
MAX_REPLICATION_FACTOR: Final = INT16_MAX

MAX_OFFSET: Final = INT64_MAX
MAX_OFFSET_DELTA: Final = INT32_MAX
"""Between the first and the last offset of a batch; indexes, too, hold offsets relative to their segment's as int32."""

MAX_TIMESTAMP_MS: Final = INT64_MAX

MAX_PRODUCER_ID: Final = INT64_MAX
MAX_PRODUCER_EPOCH: Final = INT16_MAX

MAX_SEQUENCE: Final = INT32_MAX
"""After it comes 0."""
