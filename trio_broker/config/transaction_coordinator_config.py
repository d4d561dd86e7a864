"""The settings of the transaction coordinator: timeouts, expiry, and the topic that stores transactions.

Names and defaults are Kafka's, except that replication factor and in-sync replicas follow the number of brokers.

Source: Kafka's TransactionStateManagerConfig and TransactionLogConfig.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import ConfigType, key
from trio_broker.config.log_config import MIN_SEGMENT_BYTES
from trio_broker.config.validators import at_least, minus_one_or_at_least


@attrs.frozen(kw_only=True)
class TransactionCoordinatorConfig:
    """All are read at start."""

    transaction_max_timeout_ms: int = key(
        900_000,
        "The longest timeout a producer may ask for; a transaction that is open for longer than its own is aborted.",
        validator=at_least(1),
    )
    transactional_id_expiration_ms: int = key(
        604_800_000,
        "How long a transactional id is remembered after its last transaction.",
        validator=at_least(1),
    )
    transaction_state_log_num_partitions: int = key(
        50,
        "Partitions of __transaction_state when it is created; an id's partition depends on it for ever.",
        validator=at_least(1),
    )
    transaction_state_log_replication_factor: int = key(
        -1,
        "Replicas of a partition of __transaction_state when it is created; -1: as many as brokers, up to 3.",
        type=ConfigType.SHORT,
        validator=minus_one_or_at_least(1),
    )
    transaction_state_log_min_isr: int = key(
        -1,
        "The in-sync replicas that a partition of __transaction_state needs for a write, when it is created; -1: 2 of 3"
        " replicas, else 1.",
        validator=minus_one_or_at_least(1),
    )
    transaction_state_log_segment_bytes: int = key(
        100 * 1024 * 1024,
        "Segment size of __transaction_state when it is created, 1 MiB at least: small for quick compaction, loading.",
        validator=at_least(1),
    )

    @property
    def transaction_state_log_segment_size(self) -> int:
        """``transaction.state.log.segment.bytes``, or the least that a topic may have."""
        return max(self.transaction_state_log_segment_bytes, MIN_SEGMENT_BYTES)
