"""The settings of the producer, under Kafka's names.

Source: Kafka's ProducerConfig. A constant that differs from its default says why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from kafka_wire.messages.produce import ACKS_ALL
from kafka_wire.records.compression import Codec
from trio_broker.client.address import Address
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.security import ClientSecurity

DEFAULT_BATCH_BYTES: Final = 256 * 1024
"""Bytes of one batch before compression. Sixteen times Kafka's default: no user of this producer waits for a single
record, and batches of this size are appended, compressed and read 1.3 to 2.4 times faster. A quarter of the default
``max.message.bytes`` of topics."""

MOST_BATCH_BYTES: Final = 64 * 1024 * 1024
"""The most that ``batch_size`` may be: by default, readers of this package decompress a batch to no more."""

DEFAULT_REQUEST_BYTES: Final = 16 * 1024 * 1024
"""Kafka's default is 1 MiB. Larger, because the limit of a record is then its topic's alone; brokers accept requests up
to 100 MiB (``socket.request.max.bytes``)."""

MOST_REQUEST_BYTES: Final = 1024 * 1024 * 1024

DEFAULT_BUFFER_BYTES: Final = 32 * 1024 * 1024
"""Bytes of records that one task may hold before they are acknowledged; Kafka's default of ``buffer.memory``."""

DEFAULT_REQUEST_TIMEOUT_MS: Final = 30_000
DEFAULT_DELIVERY_TIMEOUT_MS: Final = 120_000
DEFAULT_MAX_BLOCK_MS: Final = 60_000
DEFAULT_TRANSACTION_TIMEOUT_MS: Final = 900_000
"""Fifteen times Kafka's default, and the most that brokers allow by default (``transaction.max.timeout.ms``). Who ends
a transaction may be another process than the one that wrote it, and may have to be started again before."""
DEFAULT_RETRY_BACKOFF_MS: Final = 100
DEFAULT_RETRY_BACKOFF_MAX_MS: Final = 1000


@attrs.frozen
class ProducerSettings:
    """Names and meanings are Kafka's; ``batch_size``, ``max_request_size`` and ``buffer_memory`` are bytes.

    ``compression_level`` is on the codec's own scale; None is the codec's default. With ``ignore_keys`` a record's key
    does not decide its partition. With any ``acks`` but ``ACKS_ALL`` a batch that may have been appended is not
    repeated. ``option_prefix`` and ``own_options`` say how the user of a program sets them (``option_name``).
    """

    bootstrap_servers: tuple[Address, ...]
    client_id: str = "trio-broker"
    codec: Codec = Codec.NONE
    compression_level: int | None = None
    batch_size: int = DEFAULT_BATCH_BYTES
    max_request_size: int = DEFAULT_REQUEST_BYTES
    buffer_memory: int = DEFAULT_BUFFER_BYTES
    request_timeout_ms: int = DEFAULT_REQUEST_TIMEOUT_MS
    delivery_timeout_ms: int = DEFAULT_DELIVERY_TIMEOUT_MS
    max_block_ms: int = DEFAULT_MAX_BLOCK_MS
    retry_backoff_ms: int = DEFAULT_RETRY_BACKOFF_MS
    retry_backoff_max_ms: int = DEFAULT_RETRY_BACKOFF_MAX_MS
    transaction_timeout_ms: int = DEFAULT_TRANSACTION_TIMEOUT_MS
    ignore_keys: bool = False
    acks: int = ACKS_ALL
    allow_auto_topic_creation: bool = True
    security: ClientSecurity = attrs.field(factory=ClientSecurity)
    option_prefix: str = ""
    own_options: Mapping[str, str] = attrs.field(factory=dict)

    @property
    def connection(self) -> ConnectionSettings:
        """How the cluster is reached."""
        return ConnectionSettings(self.bootstrap_servers, self.client_id, self.security)

    def option_name(self, key: str) -> str:
        """Return for an error how the user sets Kafka's ``key``: behind the prefix, or by the program's own option."""
        own = self.own_options.get(key)
        return self.option_prefix + key if own is None else f"{own}, {key}"
