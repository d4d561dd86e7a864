"""What the image says of the brokers that have replicas, for the leaders of partitions.

Source: Kafka's KRaftMetadataCache (``getAliveBrokerEpoch``, ``isBrokerShuttingDown``).
"""

from __future__ import annotations

import attrs

from trio_broker.cluster.metadata_cache import MetadataCache


@attrs.frozen
class ImageBrokers:
    """See ``trio_broker.partition.remote_replicas.ReplicaBrokers``."""

    cache: MetadataCache

    def registered_epoch(self, broker_id: int) -> int | None:
        broker = self.cache.image.brokers.get(broker_id)
        return None if broker is None else broker.broker_epoch

    def alive_epoch(self, broker_id: int) -> int | None:
        broker = self.cache.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.broker_epoch

    def is_shutting_down(self, broker_id: int) -> bool:
        broker = self.cache.image.brokers.get(broker_id)
        return broker is not None and broker.in_controlled_shutdown
