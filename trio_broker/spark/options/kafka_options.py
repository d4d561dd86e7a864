"""The options that begin with ``kafka.``: configs of Kafka's consumer and producer, for readers and writers of a job.

Some are used. Some Spark's own Kafka source and sink refuse, and so do these, with what to do instead. The other
configs of Kafka's consumers and producers have nothing to act on; they are accepted with one warning, so that a job
that sets them runs. A name that Kafka does not know is most likely misspelt, and an error.

Source: Kafka's ConsumerConfig and ProducerConfig; KafkaSourceProvider of Spark's connector.
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

from kafka_wire.limits import INT32_MAX
from kafka_wire.records.compression import Codec
from trio_broker.client.address import parse_addresses
from trio_broker.client.producer.settings import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BUFFER_BYTES,
    DEFAULT_DELIVERY_TIMEOUT_MS,
    DEFAULT_MAX_BLOCK_MS,
    DEFAULT_REQUEST_BYTES,
    DEFAULT_REQUEST_TIMEOUT_MS,
    DEFAULT_RETRY_BACKOFF_MAX_MS,
    DEFAULT_RETRY_BACKOFF_MS,
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    MOST_BATCH_BYTES,
    MOST_REQUEST_BYTES,
)
from trio_broker.common.did_you_mean import CLOSE
from trio_broker.common.security_protocol import SecurityProtocol
from trio_broker.spark.options.option import BOOLEAN, TEXT, Option, ValueType, integer, one_of

PREFIX: Final = "kafka."


class ReadIsolation(Enum):
    """Whether records of open and aborted transactions are rows."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


class Acks(Enum):
    """Kafka's values of ``acks``."""

    ALL = "all"
    MINUS_ONE = "-1"
    NONE = "0"
    LEADER = "1"

    @property
    def is_all(self) -> bool:
        """Whether all in-sync replicas acknowledge a record."""
        return self in (Acks.ALL, Acks.MINUS_ONE)


# --- Of readers and writers ---


BOOTSTRAP_SERVERS: Final = Option(
    "kafka.bootstrap.servers",
    ValueType("host:port,…", parse_addresses),
    None,
    "Brokers to ask first; one that answers is enough. Required, unless a reader's `path` names the logs of a broker"
    " that does not run.",
)
DEFAULT_CLIENT_ID: Final = "trio-broker-spark"
CLIENT_ID: Final = Option(
    "kafka.client.id", TEXT, DEFAULT_CLIENT_ID, "The name of the job in the brokers' logs, metrics and quotas."
)
SECURITY_PROTOCOL: Final = Option(
    "kafka.security.protocol",
    TEXT,
    SecurityProtocol.PLAINTEXT.name,
    "How connections are secured; further options are a client's [properties](security.md#tls) with `kafka.` before"
    " them.",
    difference="Files are PEM or PKCS12, the login PLAIN or SCRAM.",
    form=", ".join(SecurityProtocol.__members__),
    attribute="",  # read together with the further ones
)
REQUEST_TIMEOUT_MS: Final = Option(
    "kafka.request.timeout.ms",
    integer(1, INT32_MAX),
    DEFAULT_REQUEST_TIMEOUT_MS,
    "How long one answer is waited for, in milliseconds.",
)
RETRY_BACKOFF_MS: Final = Option(
    "kafka.retry.backoff.ms",
    integer(0, INT32_MAX),
    DEFAULT_RETRY_BACKOFF_MS,
    "The first pause before something is tried again, in milliseconds; each next one doubles.",
)
RETRY_BACKOFF_MAX_MS: Final = Option(
    "kafka.retry.backoff.max.ms",
    integer(0, INT32_MAX),
    DEFAULT_RETRY_BACKOFF_MAX_MS,
    "The longest pause, in milliseconds.",
)

# --- Of readers ---

GROUP_ID: Final = Option(
    "kafka.group.id",
    TEXT,
    None,
    "The name of a consumer group.",
    difference="Taken with a warning; no group is joined, no offset committed.",
)
ISOLATION_LEVEL: Final = Option(
    "kafka.isolation.level",
    one_of(ReadIsolation),
    ReadIsolation.READ_COMMITTED,
    "`read_committed` leaves out aborted transactions and waits for open ones; `read_uncommitted` does neither.",
    difference="There the default is `read_uncommitted`.",
)
FETCH_MAX_BYTES: Final = Option(
    "kafka.fetch.max.bytes",
    integer(1, INT32_MAX),
    50 * 1024 * 1024,
    "The most that one answer of a broker holds, in bytes.",
)
MAX_PARTITION_FETCH_BYTES: Final = Option(
    "kafka.max.partition.fetch.bytes",
    integer(1, INT32_MAX),
    8 * 1024 * 1024,
    "The most that one answer holds of a partition, in bytes; a larger batch still comes, alone.",
    difference="There 1 MiB. A task reads one partition, and larger answers were read three times faster.",
)
FETCH_MIN_BYTES: Final = Option(
    "kafka.fetch.min.bytes", integer(0, INT32_MAX), 1, "What a broker waits for before it answers, in bytes."
)
FETCH_MAX_WAIT_MS: Final = Option(
    "kafka.fetch.max.wait.ms",
    integer(0, INT32_MAX),
    500,
    "How long a broker waits for `kafka.fetch.min.bytes`, in milliseconds.",
)
RECEIVE_BUFFER_BYTES: Final = Option(
    "kafka.receive.buffer.bytes",
    integer(-1, INT32_MAX),
    -1,
    "The buffer of a connection in the system, in bytes; -1 leaves it to the system.",
    difference="There 65,536, which keeps the system from growing the buffer.",
)
CHECK_CRCS: Final = Option("kafka.check.crcs", BOOLEAN, True, "The default of `verifyCrc`.")

# --- Of writers ---

ACKS: Final = Option(
    "kafka.acks",
    one_of(Acks),
    Acks.ALL,
    "Which replicas must have a record before it counts as written.",
    difference="Always all in-sync replicas; `0` and `1` are taken with a warning.",
    attribute="",  # the settings of a producer always have all
)
ENABLE_IDEMPOTENCE: Final = Option(
    "kafka.enable.idempotence",
    BOOLEAN,
    True,
    "Whether a batch that is sent again is recognised.",
    difference="Always; `false` is taken with a warning.",
)
COMPRESSION_TYPE: Final = Option(
    "kafka.compression.type", one_of(Codec), Codec.NONE, "The codec of batches.", attribute="codec"
)
GZIP_LEVEL: Final = Option(
    "kafka.compression.gzip.level", integer(-1, 9), -1, "How hard gzip tries, from 1 to 9; -1 is its own default."
)
LZ4_LEVEL: Final = Option(
    "kafka.compression.lz4.level",
    integer(1, 17),
    1,
    "How hard lz4 tries, from 1 to 17.",
    difference="There 9, which is slower for a little less.",
)
ZSTD_LEVEL: Final = Option(
    "kafka.compression.zstd.level", integer(-131_072, 22), 3, "How hard zstd tries, from -131072 to 22."
)
BATCH_SIZE: Final = Option(
    "kafka.batch.size",
    integer(0, MOST_BATCH_BYTES),
    DEFAULT_BATCH_BYTES,
    "The most that a batch of more than one record takes before it is compressed, in bytes.",
    difference="There 16,384. Larger batches are written, compressed and read faster.",
)
MAX_REQUEST_SIZE: Final = Option(
    "kafka.max.request.size",
    integer(1024, MOST_REQUEST_BYTES),
    DEFAULT_REQUEST_BYTES,
    "The most that the batches of one request take, and with it one record, in bytes.",
    difference="There 1,048,576. The topic's own limit holds all the same.",
)
BUFFER_MEMORY: Final = Option(
    "kafka.buffer.memory",
    integer(1024),
    DEFAULT_BUFFER_BYTES,
    "About how much a task gathers that is not acknowledged yet, in bytes.",
)
DELIVERY_TIMEOUT_MS: Final = Option(
    "kafka.delivery.timeout.ms",
    integer(1, INT32_MAX),
    DEFAULT_DELIVERY_TIMEOUT_MS,
    "How long a batch is tried before the task fails, from its first attempt on, in milliseconds.",
)
MAX_BLOCK_MS: Final = Option(
    "kafka.max.block.ms",
    integer(1, INT32_MAX),
    DEFAULT_MAX_BLOCK_MS,
    "How long brokers are tried for topics and a producer id, in milliseconds.",
    difference="A topic that does not exist is waited for 1 s.",
)
TRANSACTION_TIMEOUT_MS: Final = Option(
    "kafka.transaction.timeout.ms",
    integer(1, INT32_MAX),
    DEFAULT_TRANSACTION_TIMEOUT_MS,
    "With `exactly-once`: after how long brokers abort what is not committed, in milliseconds.",
    difference="There 60,000, and without effect.",
)
IGNORE_KEYS: Final = Option(
    "kafka.partitioner.ignore.keys",
    BOOLEAN,
    False,
    "Whether rows are spread over the partitions even if they have keys.",
    attribute="ignore_keys",
)

_OF_BOTH = (BOOTSTRAP_SERVERS, CLIENT_ID, SECURITY_PROTOCOL, REQUEST_TIMEOUT_MS, RETRY_BACKOFF_MS, RETRY_BACKOFF_MAX_MS)

READ_OPTIONS: Final[tuple[Option[Any], ...]] = (
    *_OF_BOTH,
    *(GROUP_ID, ISOLATION_LEVEL, FETCH_MAX_BYTES, MAX_PARTITION_FETCH_BYTES, FETCH_MIN_BYTES, FETCH_MAX_WAIT_MS),
    *(RECEIVE_BUFFER_BYTES, CHECK_CRCS),
)
WRITE_OPTIONS: Final[tuple[Option[Any], ...]] = (
    *_OF_BOTH,
    *(ACKS, ENABLE_IDEMPOTENCE, COMPRESSION_TYPE, GZIP_LEVEL, LZ4_LEVEL, ZSTD_LEVEL, BATCH_SIZE, MAX_REQUEST_SIZE),
    *(BUFFER_MEMORY, DELIVERY_TIMEOUT_MS, MAX_BLOCK_MS, TRANSACTION_TIMEOUT_MS, IGNORE_KEYS),
)

# --- What is not used ---

REFUSED_IN_READING: Final = {
    "kafka.auto.offset.reset": "is not supported: 'startingOffsets' says where a new query begins, and a stream that"
    " goes on does so where it stopped",
    "kafka.key.deserializer": "is not supported: keys are binary; make of them what you like in the query",
    "kafka.value.deserializer": "is not supported: values are binary; make of them what you like in the query",
    "kafka.enable.auto.commit": "is not supported: Spark's checkpoint keeps the offsets, nothing is committed",
    "kafka.interceptor.classes": "is not supported: no Java class sees the records",
}
"""What Spark's Kafka source refuses, too, and what to do instead."""

REFUSED_IN_WRITING: Final = {
    "kafka.key.serializer": "is not supported: keys are written as the bytes, or the UTF-8 text, that the column has",
    "kafka.value.serializer": "is not supported: values are written as the bytes, or the UTF-8 text, that the column"
    " has",
    "kafka.transactional.id": "is not supported: with 'deliveryGuarantee' exactly-once each task has an id of its own",
    "kafka.partitioner.class": "is not supported: no Java class chooses the partition; the column 'partition' does, or"
    " else the key, as Kafka's default partitioner has it",
    "kafka.interceptor.classes": "is not supported: no Java class sees the records",
}
"""What would change the records if it were followed, and what to do instead."""

_UNUSED_CONFIGS = """
    client.dns.lookup client.rack config.providers connections.max.idle.ms enable.metrics.push metadata.max.age.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms reconnect.backoff.max.ms reconnect.backoff.ms
    send.buffer.bytes socket.connection.setup.timeout.max.ms socket.connection.setup.timeout.ms

    allow.auto.create.topics auto.commit.interval.ms default.api.timeout.ms exclude.internal.topics group.instance.id
    group.protocol group.remote.assignor heartbeat.interval.ms max.poll.interval.ms max.poll.records
    partition.assignment.strategy session.timeout.ms share.acknowledgement.mode share.acquire.mode

    linger.ms max.in.flight.requests.per.connection metadata.max.idle.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class retries transaction.timeout.ms
    transaction.two.phase.commit.enable transactional.id
"""
"""Of all clients, of consumers and of producers: what neither readers nor writers use."""

_KNOWN: Final = frozenset(PREFIX + name for name in _UNUSED_CONFIGS.split()) | {
    option.name for option in (*READ_OPTIONS, *WRITE_OPTIONS)
}

UNUSED_IN_READING: Final = _KNOWN - {option.name for option in READ_OPTIONS} - set(REFUSED_IN_READING)
UNUSED_IN_WRITING: Final = (
    (_KNOWN | set(REFUSED_IN_READING)) - {option.name for option in WRITE_OPTIONS} - set(REFUSED_IN_WRITING)
)
"""Some jobs read and write with the same options, and Kafka's producer only warns of a consumer's configs, too."""


def kafka_hint(name: str) -> str:
    """Return what a misspelt ``name`` may have meant among a reader's configs, with or without the prefix; or nothing.

    The prefix is not compared: all names have it in common.
    """
    bare = {candidate.removeprefix(PREFIX): candidate for candidate in _KNOWN | set(REFUSED_IN_READING)}
    close = get_close_matches(name.lower().removeprefix(PREFIX), bare, n=1, cutoff=CLOSE)
    return f"; did you mean {bare[close[0]]!r}?" if close else ""
