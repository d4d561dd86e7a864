"""How a job talks to a cluster: the options that begin with ``kafka.``, which are configs of Kafka's consumer.

Some are served. Some Spark's own Kafka source refuses, and so they are here, with what to do instead. The other configs
of Kafka's consumers and producers have nothing to act on; they are taken with one warning, so that a job that
sets them runs. A name that Kafka does not know is most likely misspelt, and an error.

Source: Kafka's ConsumerConfig and ProducerConfig; KafkaSourceProvider of Spark's connector.
"""

from __future__ import annotations

import logging
from difflib import get_close_matches
from enum import Enum
from typing import Any, Final

import attrs

from trio_broker.client.address import PLAINTEXT, Address, parse_addresses
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options.option import (
    CLOSE,
    INT_MAX,
    GivenOptions,
    Option,
    one_of,
    parse_boolean,
    parse_text,
    whole_number,
)

log = logging.getLogger(__name__)

PREFIX: Final = "kafka."


class ReadIsolation(Enum):
    """Whether records of open and aborted transactions are rows."""

    READ_COMMITTED = "read_committed"
    READ_UNCOMMITTED = "read_uncommitted"


def _parse_plaintext(text: str) -> str:
    if text.upper() != PLAINTEXT:
        raise ValueError(f"{text} is not served yet; only {PLAINTEXT} listeners can be read from")
    return PLAINTEXT


BOOTSTRAP_SERVERS: Final = Option(
    "kafka.bootstrap.servers",
    parse_addresses,
    None,
    "Brokers to ask first; one that answers is enough. Required, unless `path` names the logs of a broker that does not"
    " run.",
    form="host:port,…",
)
CLIENT_ID: Final = Option(
    "kafka.client.id", parse_text, "trio-broker-spark", "The name of the job in the brokers' logs, metrics and quotas."
)
GROUP_ID: Final = Option(
    "kafka.group.id",
    parse_text,
    None,
    "The name of a consumer group.",
    difference="Taken with a warning; no group is joined, no offset committed.",
)
ISOLATION_LEVEL: Final = Option(
    "kafka.isolation.level",
    one_of(ReadIsolation),
    ReadIsolation.READ_COMMITTED,
    "`read_committed` leaves out aborted transactions and waits for open ones; `read_uncommitted` does neither.",
    form="read_committed, read_uncommitted",
    default_text="`read_committed`",
    difference="There the default is `read_uncommitted`.",
)
SECURITY_PROTOCOL: Final = Option(
    "kafka.security.protocol",
    _parse_plaintext,
    PLAINTEXT,
    "How connections are secured.",
    form="PLAINTEXT",
    difference="TLS and SASL are not served yet.",
)
FETCH_MAX_BYTES: Final = Option(
    "kafka.fetch.max.bytes",
    whole_number(1, INT_MAX),
    50 * 1024 * 1024,
    "The most that one answer of a broker holds, in bytes.",
    form="integer",
)
MAX_PARTITION_FETCH_BYTES: Final = Option(
    "kafka.max.partition.fetch.bytes",
    whole_number(1, INT_MAX),
    8 * 1024 * 1024,
    "The most that one answer holds of a partition, in bytes; a larger batch still comes, alone.",
    form="integer",
    difference="There 1 MiB. A task reads one partition, and larger answers were read three times faster.",
)
FETCH_MIN_BYTES: Final = Option(
    "kafka.fetch.min.bytes",
    whole_number(0, INT_MAX),
    1,
    "What a broker waits for before it answers, in bytes.",
    form="integer",
)
FETCH_MAX_WAIT_MS: Final = Option(
    "kafka.fetch.max.wait.ms",
    whole_number(0, INT_MAX),
    500,
    "How long a broker waits for `kafka.fetch.min.bytes`, in milliseconds.",
    form="integer",
)
REQUEST_TIMEOUT_MS: Final = Option(
    "kafka.request.timeout.ms",
    whole_number(1, INT_MAX),
    30_000,
    "How long one answer is waited for, in milliseconds.",
    form="integer",
)
RECEIVE_BUFFER_BYTES: Final = Option(
    "kafka.receive.buffer.bytes",
    whole_number(-1, INT_MAX),
    -1,
    "The buffer of a connection in the system, in bytes; -1 leaves it to the system.",
    form="integer",
    difference="There 65,536, which keeps the system from growing the buffer.",
)
RETRY_BACKOFF_MS: Final = Option(
    "kafka.retry.backoff.ms",
    whole_number(0, INT_MAX),
    100,
    "The first pause before something is tried again, in milliseconds; each next one doubles.",
    form="integer",
)
RETRY_BACKOFF_MAX_MS: Final = Option(
    "kafka.retry.backoff.max.ms",
    whole_number(0, INT_MAX),
    1000,
    "The longest pause, in milliseconds.",
    form="integer",
)
CHECK_CRCS: Final = Option("kafka.check.crcs", parse_boolean, True, "The default of `verifyCrc`.", form="true, false")

SERVED: Final[tuple[Option[Any], ...]] = (
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    GROUP_ID,
    ISOLATION_LEVEL,
    SECURITY_PROTOCOL,
    FETCH_MAX_BYTES,
    MAX_PARTITION_FETCH_BYTES,
    FETCH_MIN_BYTES,
    FETCH_MAX_WAIT_MS,
    REQUEST_TIMEOUT_MS,
    RECEIVE_BUFFER_BYTES,
    RETRY_BACKOFF_MS,
    RETRY_BACKOFF_MAX_MS,
    CHECK_CRCS,
)
"""In the order of the documentation."""

REFUSED: Final = {
    "kafka.auto.offset.reset": "is not supported: 'startingOffsets' says where a new query begins, and a stream that"
    " goes on does so where it stopped",
    "kafka.key.deserializer": "is not supported: keys are binary; make of them what you like in the query",
    "kafka.value.deserializer": "is not supported: values are binary; make of them what you like in the query",
    "kafka.enable.auto.commit": "is not supported: Spark's checkpoint keeps the offsets, nothing is committed",
    "kafka.interceptor.classes": "is not supported: no Java class sees the records",
}
"""What Spark's Kafka source refuses, too, and what to do instead."""

OF_ALL_CLIENTS: Final = (
    "client.dns.lookup",
    "client.rack",
    "config.providers",
    "connections.max.idle.ms",
    "enable.metrics.push",
    "metadata.max.age.ms",
    "metadata.recovery.rebootstrap.trigger.ms",
    "metadata.recovery.strategy",
    "metric.reporters",
    "metrics.num.samples",
    "metrics.recording.level",
    "metrics.sample.window.ms",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "security.providers",
    "send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms",
    "socket.connection.setup.timeout.ms",
)
OF_CONSUMERS: Final = (
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "default.api.timeout.ms",
    "exclude.internal.topics",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "share.acknowledgement.mode",
    "share.acquire.mode",
)
OF_PRODUCERS: Final = (
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delivery.timeout.ms",
    "enable.idempotence",
    "linger.ms",
    "max.block.ms",
    "max.in.flight.requests.per.connection",
    "max.request.size",
    "metadata.max.idle.ms",
    "partitioner.adaptive.partitioning.enable",
    "partitioner.availability.timeout.ms",
    "partitioner.class",
    "partitioner.ignore.keys",
    "retries",
    "transaction.timeout.ms",
    "transaction.two.phase.commit.enable",
    "transactional.id",
)
"""Some jobs read and write with the same options."""

WITHOUT_EFFECT: Final = frozenset(PREFIX + name for name in (*OF_ALL_CLIENTS, *OF_CONSUMERS, *OF_PRODUCERS))
"""What Kafka knows and a reader has no use for."""

SECURITY_PREFIXES: Final = ("kafka.ssl.", "kafka.sasl.")
"""Configs of protocols other than PLAINTEXT, which have nothing to act on either."""


@attrs.frozen
class KafkaSettings:
    """Names and meanings are Kafka's. Sizes are bytes; ``receive_buffer_bytes`` of -1 leaves it to the system.

    ``bootstrap_servers`` is empty for a job that reads directories without a broker.
    """

    bootstrap_servers: tuple[Address, ...]
    client_id: str = "trio-broker-spark"
    group_id: str | None = None
    fetch_max_bytes: int = 50 * 1024 * 1024
    max_partition_fetch_bytes: int = 8 * 1024 * 1024
    fetch_min_bytes: int = 1
    fetch_max_wait_ms: int = 500
    request_timeout_ms: int = 30_000
    receive_buffer_bytes: int = -1
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000


def read_kafka_settings(given: GivenOptions) -> KafkaSettings:
    """Return the settings that the ``kafka.`` options among ``given`` make.

    Raises:
        OptionError: one is refused, unknown, or has a value that means nothing.
    """
    _check_names(given)
    given.read(SECURITY_PROTOCOL)
    if GROUP_ID in given:
        log.warning("%s is set to %r: no group is joined and no offset committed", GROUP_ID.name, given.text(GROUP_ID))
    return KafkaSettings(
        bootstrap_servers=given.read(BOOTSTRAP_SERVERS) or (),
        client_id=given.read_required(CLIENT_ID),
        group_id=given.read(GROUP_ID),
        fetch_max_bytes=given.read_required(FETCH_MAX_BYTES),
        max_partition_fetch_bytes=given.read_required(MAX_PARTITION_FETCH_BYTES),
        fetch_min_bytes=given.read_required(FETCH_MIN_BYTES),
        fetch_max_wait_ms=given.read_required(FETCH_MAX_WAIT_MS),
        request_timeout_ms=given.read_required(REQUEST_TIMEOUT_MS),
        receive_buffer_bytes=given.read_required(RECEIVE_BUFFER_BYTES),
        retry_backoff_ms=given.read_required(RETRY_BACKOFF_MS),
        retry_backoff_max_ms=given.read_required(RETRY_BACKOFF_MAX_MS),
    )


def kafka_hint(name: str) -> str:
    """Return what a misspelt ``name`` may have meant among Kafka's configs, with or without the prefix; or nothing.

    The prefix is not compared: all names have it in common.
    """
    known = {option.name for option in SERVED} | WITHOUT_EFFECT | set(REFUSED)
    bare = {candidate.removeprefix(PREFIX): candidate for candidate in known}
    close = get_close_matches(name.lower().removeprefix(PREFIX), bare, n=1, cutoff=CLOSE)
    return f"; did you mean {bare[close[0]]!r}?" if close else ""


def _check_names(given: GivenOptions) -> None:
    """Refuse what cannot be and tell of what does nothing."""
    served = {option.name for option in SERVED}
    without_effect = []
    for name in sorted(name for name in given.names() if name.startswith(PREFIX)):
        if name in served:
            continue
        if name in REFUSED:
            raise OptionError(given.spelling(name), REFUSED[name])
        if name not in WITHOUT_EFFECT and not name.startswith(SECURITY_PREFIXES):
            raise OptionError(given.spelling(name), f"Kafka knows no such config{kafka_hint(name)}")
        without_effect.append(name)
    if without_effect:
        log.warning("these options have no effect here: %s", ", ".join(without_effect))
