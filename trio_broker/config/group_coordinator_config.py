"""The settings of the group coordinator: sessions, rebalances, committed offsets and the topic that stores them.

Names and defaults are Kafka's, except that ``offsets.topic.replication.factor`` follows the number of brokers. A key
that a single group may set (a config resource of type GROUP) has in ``group`` the name under which groups set it.

Source: Kafka's GroupCoordinatorConfig, GroupConfig and OffsetConfig.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import INT_MAX, ConfigType, UpdateMode, key
from trio_broker.config.log_config import MIN_SEGMENT_BYTES
from trio_broker.config.validators import at_least, minus_one_or_at_least, one_of, rebalance_protocols, some_of

LONG = ConfigType.LONG


@attrs.frozen(kw_only=True)
class GroupCoordinatorConfig:
    """Classic groups, groups of the consumer protocol (KIP-848), and committed offsets. Most are read at start."""

    group_coordinator_rebalance_protocols: tuple[str, ...] = key(
        ("classic", "consumer"),
        "The protocols that groups may use; classic cannot be left out.",
        validator=rebalance_protocols(served=("classic", "consumer"), known=("share", "streams")),
    )
    group_min_session_timeout_ms: int = key(
        6_000, "The shortest session timeout a member of a classic group may ask for."
    )
    group_max_session_timeout_ms: int = key(
        1_800_000, "The longest session timeout a member of a classic group may ask for."
    )
    group_initial_rebalance_delay_ms: int = key(
        3_000, "How long an empty classic group waits for more members after its first one; negative is not at all."
    )
    group_max_size: int = key(INT_MAX, "The most members of a classic group.", validator=at_least(1))
    group_consumer_session_timeout_ms: int = key(
        45_000,
        "How long a member of a consumer group may be silent.",
        validator=at_least(1),
        group="consumer.session.timeout.ms",
    )
    group_consumer_min_session_timeout_ms: int = key(
        45_000, "The least that a group may set consumer.session.timeout.ms to.", validator=at_least(1)
    )
    group_consumer_max_session_timeout_ms: int = key(
        60_000, "The most that a group may set consumer.session.timeout.ms to.", validator=at_least(1)
    )
    group_consumer_heartbeat_interval_ms: int = key(
        5_000,
        "How often members of a consumer group are asked to send a heartbeat.",
        validator=at_least(1),
        group="consumer.heartbeat.interval.ms",
    )
    group_consumer_min_heartbeat_interval_ms: int = key(
        5_000, "The least that a group may set consumer.heartbeat.interval.ms to.", validator=at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms: int = key(
        15_000, "The most that a group may set consumer.heartbeat.interval.ms to.", validator=at_least(1)
    )
    group_consumer_assignment_interval_ms: int = key(
        1_000,
        "The least time between two target assignments of a consumer group, so that many changes make one.",
        update_mode=UpdateMode.CLUSTER_WIDE,
        validator=at_least(0),
        group="consumer.assignment.interval.ms",
    )
    group_consumer_min_assignment_interval_ms: int = key(
        0, "The least that a group may set consumer.assignment.interval.ms to.", validator=at_least(0)
    )
    group_consumer_max_assignment_interval_ms: int = key(
        15_000, "The most that a group may set consumer.assignment.interval.ms to.", validator=at_least(0)
    )
    group_consumer_max_size: int = key(INT_MAX, "The most members of a consumer group.", validator=at_least(1))
    group_consumer_assignors: tuple[str, ...] = key(
        ("uniform", "range"),
        "The assignors that members of consumer groups may ask for; the first is for those who do not.",
        validator=some_of("uniform", "range"),
    )
    group_consumer_migration_policy: str = key(
        "bidirectional",
        "Which way groups with members may change between the classic and the consumer protocol.",
        parser=str.lower,
        validator=one_of("disabled", "upgrade", "downgrade", "bidirectional"),
    )
    group_consumer_regex_refresh_interval_ms: int = key(
        600_000,
        "How often regular expressions of consumer groups are matched again while no topic is created or deleted.",
        validator=at_least(10_000),
    )
    offset_metadata_max_bytes: int = key(
        4_096, "The longest metadata text a commit may carry, per partition.", validator=at_least(0)
    )
    offsets_retention_minutes: int = key(
        10_080,
        "How long committed offsets outlive a group's last member, or the commit where there never was one.",
        validator=at_least(1),
    )
    offsets_retention_check_interval_ms: int = key(
        600_000, "How often expired offsets are looked for.", type=LONG, validator=at_least(1)
    )
    offsets_commit_timeout_ms: int = key(
        5_000,
        "How long a change of a group may take to become safe before its client is asked to try again.",
        validator=at_least(1),
    )
    offsets_topic_num_partitions: int = key(
        50,
        "Partitions of __consumer_offsets when it is created; a group's partition depends on it for ever.",
        validator=at_least(1),
    )
    offsets_topic_replication_factor: int = key(
        -1,
        "Replicas of a partition of __consumer_offsets when it is created; -1: as many as brokers, up to 3.",
        type=ConfigType.SHORT,
        validator=minus_one_or_at_least(1),
    )
    offsets_topic_segment_bytes: int = key(
        100 * 1024 * 1024,
        "Segment size of __consumer_offsets when it is created, 1 MiB at least: small for quick compaction, loading.",
        validator=at_least(1),
    )

    @property
    def offsets_topic_segment_size(self) -> int:
        """``offsets.topic.segment.bytes``, or the least that a topic may have: Kafka takes less and makes no topic."""
        return max(self.offsets_topic_segment_bytes, MIN_SEGMENT_BYTES)

    @property
    def initial_rebalance_delay_ms(self) -> int:
        """``group.initial.rebalance.delay.ms``, which Kafka takes below 0, too."""
        return max(self.group_initial_rebalance_delay_ms, 0)

    @property
    def offsets_retention_ms(self) -> int:
        """``offsets.retention.minutes`` in milliseconds."""
        return self.offsets_retention_minutes * 60_000
