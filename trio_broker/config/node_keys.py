"""The keys of the node itself: who it is, where it listens, how many threads it has, what it grants to requests.

Names and defaults are Kafka's; a key that is ours says so in its documentation.

Source: Kafka's SocketServerConfigs, ServerConfigs and ServerLogConfigs.
"""

from __future__ import annotations

from collections.abc import Mapping

from trio_broker.config.config_key import INT_MAX, ConfigKey, ConfigType, Fallback, UpdateMode, split_list
from trio_broker.config.validators import (
    CONNECTION_OVERRIDES,
    HOST_PORT_OR_EMPTY,
    NOT_EMPTY,
    at_least,
    minus_one_or_at_least,
    one_of,
    optionally,
    parse_connection_overrides,
)

DEFAULT_NODE_ID = 1
"""Kafka demands a node id; a broker that stands alone need not ask for one. 1 is what Kafka's own sample file says."""

DEFAULT_LOG_DIRECTORY = "trio-broker-data"
"""Below the working directory. Kafka's default is below /tmp, where a restart of the machine takes the records."""

DEFAULT_PROTOCOL_MAP = ("PLAINTEXT:PLAINTEXT", "SSL:SSL", "SASL_PLAINTEXT:SASL_PLAINTEXT", "SASL_SSL:SASL_SSL")
"""Every security protocol of Kafka is also the name of a listener."""


def _unchanged(value: int) -> int:
    return value


# --- Node ---

BROKER_ID = ConfigKey[int | None](
    name="broker.id",
    type=ConfigType.INT,
    default=None,
    validator=optionally(at_least(0)),
    documentation="The former name of node.id.",
)

NODE_ID = ConfigKey[int](
    name="node.id",
    type=ConfigType.INT,
    default=DEFAULT_NODE_ID,
    validator=at_least(0),
    fallbacks=(Fallback(BROKER_ID, _unchanged),),
    documentation="The number of this node; it may not change while the data directory lives.",
)

BROKER_RACK = ConfigKey[str | None](
    name="broker.rack",
    type=ConfigType.STRING,
    default=None,
    documentation="The rack or zone this node stands in, as clients are told it.",
)

LOG_DIR = ConfigKey[str](
    name="log.dir",
    type=ConfigType.STRING,
    default=DEFAULT_LOG_DIRECTORY,
    documentation="The data directory, when log.dirs is not set.",
)

LOG_DIRS = ConfigKey[tuple[str, ...]](
    name="log.dirs",
    type=ConfigType.LIST,
    default=(DEFAULT_LOG_DIRECTORY,),
    validator=NOT_EMPTY,
    fallbacks=(Fallback(LOG_DIR, split_list),),
    documentation="The data directories, separated by commas; a new partition goes to the one with the fewest.",
)

LOG_DIRS_ALLOW_NEW = ConfigKey[bool](
    name="log.dirs.allow.new",
    type=ConfigType.BOOLEAN,
    default=False,
    documentation="Ours. Lets an empty directory join log.dirs that were in use; else it is taken for a lost mount.",
)

LOG_DURABILITY = ConfigKey[str](
    name="log.durability",
    type=ConfigType.STRING,
    default="fsync",
    validator=one_of("fsync", "page-cache"),
    documentation="Ours. When a record counts as written: fsync waits for the disk, page-cache does not, as in Kafka.",
)

SHUTDOWN_GRACE_MS = ConfigKey[int](
    name="shutdown.grace.ms",
    type=ConfigType.LONG,
    default=10_000,
    validator=at_least(0),
    documentation="Ours. How long a stop lets requests under way finish before it closes their connections.",
)

ADMIN_LISTENER = ConfigKey[str](
    name="admin.listener",
    type=ConfigType.STRING,
    default="127.0.0.1:9644",
    validator=HOST_PORT_OR_EMPTY,
    documentation="Ours. host:port of the admin page and HTTP API; empty turns them off, port 0 picks a free one.",
)

ADMIN_ALLOW_REMOTE = ConfigKey[bool](
    name="admin.allow.remote",
    type=ConfigType.BOOLEAN,
    default=False,
    documentation="Ours. Whether admin.listener may be an address that other machines reach; there is no login.",
)

ADMIN_ALLOWED_HOSTS = ConfigKey[tuple[str, ...]](
    name="admin.allowed.hosts",
    type=ConfigType.LIST,
    default=(),
    documentation="Ours. Further names that browsers may call the admin page by, as behind a proxy.",
)

METRICS_PER_PARTITION = ConfigKey[bool](
    name="metrics.per.partition",
    type=ConfigType.BOOLEAN,
    default=False,
    update_mode=UpdateMode.CLUSTER_WIDE,
    documentation="Ours. Whether /metrics has offsets and size of each partition, and the lag of each group in it.",
)

# --- Listeners and connections ---

LISTENERS = ConfigKey[tuple[str, ...]](
    name="listeners",
    type=ConfigType.LIST,
    default=("PLAINTEXT://127.0.0.1:9092",),
    validator=NOT_EMPTY,
    documentation="Where clients may connect, as NAME://host:port; no host is every interface, port 0 a free one.",
)

ADVERTISED_LISTENERS = ConfigKey[tuple[str, ...] | None](
    name="advertised.listeners",
    type=ConfigType.LIST,
    default=None,
    documentation="The addresses clients are told; unset, or without a host, each is told the one it dialled.",
)

LISTENER_SECURITY_PROTOCOL_MAP = ConfigKey[tuple[str, ...]](
    name="listener.security.protocol.map",
    type=ConfigType.LIST,
    default=DEFAULT_PROTOCOL_MAP,
    documentation="The security protocol of each listener name, as NAME:PROTOCOL.",
)

CONTROLLER_LISTENER_NAMES = ConfigKey[tuple[str, ...]](
    name="controller.listener.names",
    type=ConfigType.LIST,
    default=(),
    documentation="Listeners of this name are not opened: here the controller is a part of the broker.",
)

NUM_NETWORK_THREADS = ConfigKey[int](
    name="num.network.threads",
    type=ConfigType.INT,
    default=3,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    thread_pool=True,
    documentation="Processors: they read requests and write responses; each has a thread for socket work that blocks.",
)

NUM_IO_THREADS = ConfigKey[int](
    name="num.io.threads",
    type=ConfigType.INT,
    default=8,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    thread_pool=True,
    documentation="How many requests are handled at a time, and how many threads do their blocking disk work.",
)

QUEUED_MAX_REQUESTS = ConfigKey[int](
    name="queued.max.requests",
    type=ConfigType.INT,
    default=500,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    documentation="How many requests may wait for a handler before reading stops. Live here, read-only in Kafka.",
)

QUEUED_MAX_REQUEST_BYTES = ConfigKey[int](
    name="queued.max.request.bytes",
    type=ConfigType.LONG,
    default=-1,
    documentation="How many bytes of requests may wait before the Processors stop reading; -1 is no limit.",
)

SOCKET_REQUEST_MAX_BYTES = ConfigKey[int](
    name="socket.request.max.bytes",
    type=ConfigType.INT,
    default=100 * 1024 * 1024,
    validator=at_least(1),
    documentation="The largest request that is read; a larger one closes its connection.",
)

SOCKET_SEND_BUFFER_BYTES = ConfigKey[int](
    name="socket.send.buffer.bytes",
    type=ConfigType.INT,
    default=-1,
    validator=minus_one_or_at_least(1),
    documentation="SO_SNDBUF of client connections; -1 leaves it to the system, which adapts it (102400 in Kafka).",
)

SOCKET_RECEIVE_BUFFER_BYTES = ConfigKey[int](
    name="socket.receive.buffer.bytes",
    type=ConfigType.INT,
    default=-1,
    validator=minus_one_or_at_least(1),
    documentation="SO_RCVBUF of client connections; -1 leaves it to the system, which adapts it (102400 in Kafka).",
)

SOCKET_LISTEN_BACKLOG_SIZE = ConfigKey[int](
    name="socket.listen.backlog.size",
    type=ConfigType.INT,
    default=1024,
    validator=at_least(1),
    documentation="How many connections the kernel may hold that were not accepted yet (50 in Kafka).",
)

MAX_CONNECTIONS = ConfigKey[int](
    name="max.connections",
    type=ConfigType.INT,
    default=INT_MAX,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="How many connections may be open at once; further ones wait until another closes.",
)

MAX_CONNECTIONS_PER_IP = ConfigKey[int](
    name="max.connections.per.ip",
    type=ConfigType.INT,
    default=INT_MAX,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="How many connections one address may have open; further ones are closed at once.",
)

MAX_CONNECTIONS_PER_IP_OVERRIDES = ConfigKey[Mapping[str, int]](
    name="max.connections.per.ip.overrides",
    type=ConfigType.STRING,
    default={},
    update_mode=UpdateMode.CLUSTER_WIDE,
    parser=parse_connection_overrides,
    validator=CONNECTION_OVERRIDES,
    documentation="Other limits for some addresses, as host:count,host:count.",
)

MAX_CONNECTION_CREATION_RATE = ConfigKey[int](
    name="max.connection.creation.rate",
    type=ConfigType.INT,
    default=INT_MAX,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(0),
    documentation="How many connections are accepted in a second; faster ones wait.",
)

CONNECTIONS_MAX_IDLE_MS = ConfigKey[int](
    name="connections.max.idle.ms",
    type=ConfigType.LONG,
    default=600_000,
    documentation="A connection without a request for this long is closed; negative is never.",
)

# --- Topics and requests ---

NUM_PARTITIONS = ConfigKey[int](
    name="num.partitions",
    type=ConfigType.INT,
    default=1,
    validator=at_least(1),
    documentation="Partitions of a topic that is created without a number of its own.",
)

DEFAULT_REPLICATION_FACTOR = ConfigKey[int](
    name="default.replication.factor",
    type=ConfigType.INT,
    default=1,
    validator=at_least(1),
    documentation="Replicas of a partition that is created without a number of its own.",
)

AUTO_CREATE_TOPICS_ENABLE = ConfigKey[bool](
    name="auto.create.topics.enable",
    type=ConfigType.BOOLEAN,
    default=True,
    documentation="Whether naming an unknown topic in Metadata creates it, if the client agrees.",
)

DELETE_TOPIC_ENABLE = ConfigKey[bool](
    name="delete.topic.enable",
    type=ConfigType.BOOLEAN,
    default=True,
    documentation="Whether topics may be deleted.",
)

FETCH_MAX_BYTES = ConfigKey[int](
    name="fetch.max.bytes",
    type=ConfigType.INT,
    default=55 * 1024 * 1024,
    validator=at_least(1024),
    documentation="The most a Fetch is answered with, whatever it asks for; the first batch comes whole all the same.",
)

MAX_REQUEST_PARTITION_SIZE_LIMIT = ConfigKey[int](
    name="max.request.partition.size.limit",
    type=ConfigType.INT,
    default=2000,
    validator=at_least(1),
    documentation="The most partitions one answer to DescribeTopicPartitions holds.",
)

PRODUCER_ID_EXPIRATION_MS = ConfigKey[int](
    name="producer.id.expiration.ms",
    type=ConfigType.INT,
    default=86_400_000,
    update_mode=UpdateMode.CLUSTER_WIDE,
    validator=at_least(1),
    documentation="How long the last batches of a silent producer are remembered, to refuse duplicates.",
)
