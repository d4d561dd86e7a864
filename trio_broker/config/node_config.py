"""The settings of the node: its id, its data directories, its admin page, and limits on requests.

Names and defaults are Kafka's. The documentation of any other key begins with "Ours".

Source: Kafka's ServerConfigs, ServerLogConfigs and ReplicationConfigs.
"""

from __future__ import annotations

import attrs

from trio_broker.config.config_key import (
    ConfigType,
    UpdateMode,
    fallback,
    key,
    unchanged,
)
from trio_broker.config.validators import HOST_PORT_OR_EMPTY, NOT_EMPTY, at_least, each_of, one_of, optionally

CLUSTER_WIDE = UpdateMode.CLUSTER_WIDE
LONG = ConfigType.LONG

DEFAULT_NODE_ID = 1
"""Kafka requires a node id; for a single broker a default is enough. 1 is the id in Kafka's sample file."""

DEFAULT_LOG_DIRECTORY = "trio-broker-data"
"""Below the working directory. Kafka's default is below /tmp, which many systems empty when they start."""


@attrs.frozen(kw_only=True)
class NodeConfig:
    """The node, its directories and its admin page."""

    node_id: int = key(
        DEFAULT_NODE_ID,
        "The number of this node; it may not change while the data directory lives.",
        validator=at_least(0),
        fallbacks=(
            fallback(
                "broker.id",
                None,
                unchanged,
                "The former name of node.id, which is to be used. Deprecated since Kafka 4.4; 5.0 has it no more.",
                validator=optionally(at_least(0)),
                replaced_by="node.id",
            ),
        ),
    )
    broker_rack: str | None = key(None, "The rack or zone of this node, advertised to clients.")
    broker_decommission: bool = key(
        False,
        "Ours. Has the replicas of this broker moved to others, and the broker leave when it has none. To be set while"
        " the cluster runs.",
        update_mode=UpdateMode.PER_BROKER,
        acts_on_rates=False,
    )
    broker_heartbeat_interval_ms: int = key(
        2000, "How often a broker is in contact with the controller, where there are several.", validator=at_least(1)
    )
    auto_leader_rebalance_enable: bool = key(
        True, "Whether preferred replicas get their leadership back by themselves, where there are several brokers."
    )
    leader_imbalance_check_interval_seconds: int = key(
        300, "How often that is looked at.", type=LONG, validator=at_least(1)
    )
    broker_session_timeout_ms: int = key(
        9000,
        "How long a broker may be silent before others lead in its place, where there are several.",
        validator=at_least(1),
    )
    initial_broker_registration_timeout_ms: int = key(
        60_000,
        "How long a broker that starts tries to register with the controller, where there are several.",
        validator=at_least(1),
    )
    log_dirs: tuple[str, ...] = key(
        (DEFAULT_LOG_DIRECTORY,),
        "The data directories, separated by commas; a new partition goes to the one with the fewest.",
        validator=NOT_EMPTY,
        fallbacks=(
            fallback(
                "log.dir", (DEFAULT_LOG_DIRECTORY,), unchanged, "The data directory, when log.dirs is not set.",
                type=ConfigType.LIST,
            ),
        ),
    )  # fmt: skip
    log_dirs_allow_new: bool = key(
        False, "Ours. Lets an empty directory join log.dirs that were in use; else it is taken for a lost mount."
    )
    log_durability: str = key(
        "fsync",
        "Ours. When a record counts as written: fsync waits for the disk, page-cache does not, as in Kafka.",
        validator=one_of("fsync", "page-cache"),
    )
    shutdown_grace_ms: int = key(
        10_000,
        "Ours. How long a stop lets requests under way finish before it closes their connections.",
        type=LONG,
        validator=at_least(0),
    )
    admin_listener: str = key(
        "127.0.0.1:9644",
        "Ours. host:port of the admin page and HTTP API; empty turns them off, port 0 picks a free one.",
        validator=HOST_PORT_OR_EMPTY,
    )
    admin_security_protocol: str = key(
        "PLAINTEXT",
        "Ours. SSL serves the admin page by HTTPS, with the ssl keys of a listener named admin, or those of all.",
        validator=one_of("PLAINTEXT", "SSL"),
    )
    admin_token_file: str = key(
        "",
        "Ours. The file with the tokens that open the admin page, made if it is not there; empty means none, and"
        " without an authorizer, no login.",
    )
    admin_allowed_hosts: tuple[str, ...] = key(
        (), "Ours. Further names that browsers may call the admin page by, as behind a proxy."
    )
    admin_messages_enabled: bool = key(
        True, "Ours. Whether the admin page and HTTP API show keys and values of records, and append records."
    )
    metrics_per_partition: bool = key(
        False,
        "Ours. Whether /metrics has offsets and size of each partition, and the lag of each group in it.",
        update_mode=CLUSTER_WIDE,
        acts_on_rates=False,
    )
    metrics_names: tuple[str, ...] = key(
        (),
        "Ours. Whose names /metrics has too, for dashboards made for them: kafka-exporter, jmx-exporter.",
        validator=each_of("kafka-exporter", "jmx-exporter"),
        update_mode=CLUSTER_WIDE,
        acts_on_rates=False,
    )


@attrs.frozen(kw_only=True)
class RequestConfig:
    """Defaults of created topics, and limits on requests."""

    num_partitions: int = key(
        1, "Partitions of a topic that is created without a number of its own.", validator=at_least(1)
    )
    default_replication_factor: int = key(
        1, "Replicas of a partition that is created without a number of its own; below 1 one has to be given."
    )
    auto_create_topics_enable: bool = key(
        True, "Whether naming an unknown topic in Metadata creates it, if the client agrees."
    )
    delete_topic_enable: bool = key(True, "Whether topics may be deleted.")
    fetch_max_bytes: int = key(
        55 * 1024 * 1024,
        "The most a Fetch is answered with, whatever it asks for; the first batch comes whole all the same.",
        validator=at_least(1024),
    )
    max_incremental_fetch_session_cache_slots: int = key(
        1_000, "How many fetch sessions are kept; consumers without one send their whole list.", validator=at_least(0)
    )
    max_request_partition_size_limit: int = key(
        2000, "The most partitions one answer to DescribeTopicPartitions holds.", validator=at_least(1)
    )
