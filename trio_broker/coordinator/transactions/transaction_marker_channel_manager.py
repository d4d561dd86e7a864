"""How the markers of a transaction reach the brokers that lead its partitions.

The partitions of this broker need no connection: there its ``MarkerWriter`` is the channel.

Source: Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from kafka_wire.error_codes import ErrorCode
from trio_broker.common.request_phase import ReleaseHandler
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps
from trio_broker.partition.transaction_end import TransactionEnd

MARKER_RETRY_SECONDS: Final = 0.5
"""After which markers that could not be written are tried again: short against a client that waits for its next
transaction, long against a disk that is full for minutes."""


class TransactionMarkerChannelManager(Protocol):
    """Ends transactions in partitions, wherever their leaders are."""

    def write_steps(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], release_handler: ReleaseHandler
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        """End the transaction in ``partitions``, each of which comes once; the code of each, NONE where the marker is
        durable.
        """
        ...
