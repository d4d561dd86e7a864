"""The transport over the wire: the records of a task come from the broker that leads its partition.

Works with any Kafka (Fetch from version 4 on) and needs nothing but a connection. The answers hold record batches as
they lie in the log, and go to the decoder without being copied. While it decodes one answer, the next one has been
asked for and is on its way; there is never more than one. Memory is one answer of ``max.partition.fetch.bytes``, or one
batch where that is larger, beside what the socket buffers.

That size is 8 MiB where the job does not say, eight times that of Kafka's consumers: fewer and larger answers cost both
sides less, and a task reads a single partition.

Source: Kafka's Fetch API; Spark's KafkaDataConsumer for what ``failOnDataLoss`` and the poll timeout mean.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Final

import attrs

from trio_broker.spark.options.kafka_settings import KafkaSettings
from trio_broker.spark.ranges import OffsetRange
from trio_broker.spark.tasks import Chunk

DEFAULT_POLL_TIMEOUT_MS: Final = 120_000
"""``kafkaConsumer.pollTimeoutMs`` of Spark's own source."""


@attrs.frozen
class WireTransport:
    """Fetches from a cluster. Picklable; every task connects for itself.

    ``poll_timeout_ms`` is how long to go on without any progress, whatever the reason. ``topic_id`` is the topic's id
    as it was planned with, in Kafka's form, ``""`` where it was not known: then a topic that is created again while the
    task runs is noticed, but not one that was before.
    """

    kafka: KafkaSettings
    read_committed: bool = True
    poll_timeout_ms: int = DEFAULT_POLL_TIMEOUT_MS
    fail_on_data_loss: bool = True
    topic_id: str = ""

    def chunks(self, offsets: OffsetRange) -> Generator[Chunk, None, None]:
        """Yield chunks in the order of their offsets until ``offsets`` is covered; closing the generator frees all.

        Without ``fail_on_data_loss``, what is gone is left out, and a line in the log says so.

        Raises:
            DataLoss: the range begins before the log does, the log ends within it, or the topic is not the same.
            SourceUnavailable: there was no progress for ``poll_timeout_ms``.
            CorruptData: what comes are no record batches, or the broker says that its own are not.
        """
        from trio_broker.spark.wire.reader import WireReader

        with closing(WireReader(self, offsets)) as reader:
            yield from reader.chunks()
