"""The keys of the group coordinator: sessions, rebalances, committed offsets and the topic that keeps them.

Names and defaults are Kafka's but for one: ``offsets.topic.replication.factor`` is 1, since there is one broker.

Source: Kafka's GroupCoordinatorConfig and OffsetConfig.
"""

from __future__ import annotations

from trio_broker.config.config_key import INT_MAX, ConfigKey, ConfigType
from trio_broker.config.validators import at_least, one_of, subset_of

# --- Classic groups ---

GROUP_MIN_SESSION_TIMEOUT_MS = ConfigKey[int](
    name="group.min.session.timeout.ms",
    type=ConfigType.INT,
    default=6_000,
    validator=at_least(1),
    documentation="The shortest session timeout a member of a classic group may ask for.",
)

GROUP_MAX_SESSION_TIMEOUT_MS = ConfigKey[int](
    name="group.max.session.timeout.ms",
    type=ConfigType.INT,
    default=1_800_000,
    validator=at_least(1),
    documentation="The longest session timeout a member of a classic group may ask for.",
)

GROUP_INITIAL_REBALANCE_DELAY_MS = ConfigKey[int](
    name="group.initial.rebalance.delay.ms",
    type=ConfigType.INT,
    default=3_000,
    validator=at_least(0),
    documentation="How long an empty classic group waits for more members after its first one.",
)

GROUP_MAX_SIZE = ConfigKey[int](
    name="group.max.size",
    type=ConfigType.INT,
    default=INT_MAX,
    validator=at_least(1),
    documentation="The most members of a classic group.",
)

# --- Groups of the consumer protocol (KIP-848) ---

GROUP_CONSUMER_SESSION_TIMEOUT_MS = ConfigKey[int](
    name="group.consumer.session.timeout.ms",
    type=ConfigType.INT,
    default=45_000,
    validator=at_least(1),
    documentation="How long a member of a consumer group may be silent.",
)

GROUP_CONSUMER_HEARTBEAT_INTERVAL_MS = ConfigKey[int](
    name="group.consumer.heartbeat.interval.ms",
    type=ConfigType.INT,
    default=5_000,
    validator=at_least(1),
    documentation="How often members of a consumer group are told to send a heartbeat.",
)

GROUP_CONSUMER_ASSIGNMENT_INTERVAL_MS = ConfigKey[int](
    name="group.consumer.assignment.interval.ms",
    type=ConfigType.INT,
    default=1_000,
    validator=at_least(0),
    documentation="The least time between two target assignments of a consumer group, so that many changes make one.",
)

GROUP_CONSUMER_MAX_SIZE = ConfigKey[int](
    name="group.consumer.max.size",
    type=ConfigType.INT,
    default=INT_MAX,
    validator=at_least(1),
    documentation="The most members of a consumer group.",
)

GROUP_CONSUMER_ASSIGNORS = ConfigKey[tuple[str, ...]](
    name="group.consumer.assignors",
    type=ConfigType.LIST,
    default=("uniform", "range"),
    validator=subset_of("uniform", "range"),
    documentation="The assignors that members of consumer groups may ask for; the first is for those who do not.",
)

GROUP_CONSUMER_MIGRATION_POLICY = ConfigKey[str](
    name="group.consumer.migration.policy",
    type=ConfigType.STRING,
    default="bidirectional",
    validator=one_of("disabled", "upgrade", "downgrade", "bidirectional"),
    documentation="Which way groups with members may change between the classic and the consumer protocol.",
)

GROUP_CONSUMER_REGEX_REFRESH_INTERVAL_MS = ConfigKey[int](
    name="group.consumer.regex.refresh.interval.ms",
    type=ConfigType.INT,
    default=600_000,
    validator=at_least(10_000),
    documentation="How often regular expressions of consumer groups are matched again while no topic comes or goes.",
)

# --- Committed offsets ---

OFFSET_METADATA_MAX_BYTES = ConfigKey[int](
    name="offset.metadata.max.bytes",
    type=ConfigType.INT,
    default=4_096,
    validator=at_least(0),
    documentation="The longest metadata text a commit may carry, per partition.",
)

OFFSETS_RETENTION_MINUTES = ConfigKey[int](
    name="offsets.retention.minutes",
    type=ConfigType.INT,
    default=10_080,
    validator=at_least(1),
    documentation="How long committed offsets outlive a group's last member, or the commit where there never was one.",
)

OFFSETS_RETENTION_CHECK_INTERVAL_MS = ConfigKey[int](
    name="offsets.retention.check.interval.ms",
    type=ConfigType.LONG,
    default=600_000,
    validator=at_least(1),
    documentation="How often expired offsets are looked for.",
)

OFFSETS_COMMIT_TIMEOUT_MS = ConfigKey[int](
    name="offsets.commit.timeout.ms",
    type=ConfigType.INT,
    default=5_000,
    validator=at_least(1),
    documentation="How long a change of a group may take to become safe before its client is told to try again.",
)

OFFSETS_TOPIC_NUM_PARTITIONS = ConfigKey[int](
    name="offsets.topic.num.partitions",
    type=ConfigType.INT,
    default=50,
    validator=at_least(1),
    documentation="Partitions of __consumer_offsets when it is created; a group's partition depends on it for ever.",
)

OFFSETS_TOPIC_REPLICATION_FACTOR = ConfigKey[int](
    name="offsets.topic.replication.factor",
    type=ConfigType.SHORT,
    default=1,
    validator=at_least(1),
    documentation="Replicas of a partition of __consumer_offsets when it is created.",
)

OFFSETS_TOPIC_SEGMENT_BYTES = ConfigKey[int](
    name="offsets.topic.segment.bytes",
    type=ConfigType.INT,
    default=100 * 1024 * 1024,
    validator=at_least(1024),
    documentation="Segment size of __consumer_offsets when it is created: small, for quick compaction and reloading.",
)
