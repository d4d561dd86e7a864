"""The options of the sink, from what a user wrote to settings.

Declared as those of the source are (``option``, ``kafka_settings``); docs/spark-sink.md has them in a table that a test
compares. Every option is checked in the driver, before a task starts. What Spark's own Kafka sink refuses is refused;
what would ask for less than is given here anyway (``acks=1``) is taken with a warning; options of readers have no
effect, so that one set of options may serve a job that reads and writes.

Source: Kafka's ProducerConfig; KafkaSourceProvider of Spark's connector.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

import attrs

from kafka_wire.records.compression import Codec
from trio_broker.client.address import PLAINTEXT, parse_addresses
from trio_broker.client.producer.settings import (
    DEFAULT_BATCH_BYTES,
    DEFAULT_BUFFER_BYTES,
    DEFAULT_DELIVERY_TIMEOUT_MS,
    DEFAULT_MAX_BLOCK_MS,
    DEFAULT_REQUEST_BYTES,
    MOST_BATCH_BYTES,
    MOST_REQUEST_BYTES,
    ProducerSettings,
)
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options import kafka_settings
from trio_broker.spark.options.kafka_settings import (
    CLIENT_ID,
    PREFIX,
    REQUEST_TIMEOUT_MS,
    RETRY_BACKOFF_MAX_MS,
    RETRY_BACKOFF_MS,
    SECURITY_PREFIXES,
)
from trio_broker.spark.options.option import (
    INT_MAX,
    GivenOptions,
    Mode,
    Option,
    hint,
    parse_boolean,
    parse_text,
    whole_number,
)
from trio_broker.spark.options.read_option_table import OPTIONS
from trio_broker.spark.producer.row_ids import HEADER

log = logging.getLogger(__name__)

ALL: Final = ("all", "-1")
LESS_THAN_ALL: Final = ("0", "1")


def _parse_acks(text: str) -> str:
    if text.lower() not in ALL + LESS_THAN_ALL:
        raise ValueError(f"{text!r} is none of all, -1, 0, 1")
    return text.lower()


def _parse_codec(text: str) -> Codec:
    names = {codec.name.lower(): codec for codec in Codec}
    if text.lower() not in names:
        raise ValueError(f"{text!r} is none of {', '.join(names)}")
    return names[text.lower()]


def _parse_plaintext(text: str) -> str:
    if text.upper() != PLAINTEXT:
        raise ValueError(f"{text} is not served yet; only {PLAINTEXT} listeners can be written to")
    return PLAINTEXT


TOPIC: Final = Option("topic", parse_text, None, "The topic of all rows. It beats the column `topic`.")
INCLUDE_HEADERS: Final = Option(
    "includeHeaders",
    parse_boolean,
    True,
    "Whether the column `headers` becomes the records' headers.",
    form="true, false",
    difference="There an option of the source only; the column is always written.",
)
DEDUPLICATION_HEADER: Final = Option(
    "deduplicationHeader",
    parse_boolean,
    None,
    f"Whether each record gets the header `{HEADER}`, by which consumers drop what a repeated task wrote again.",
    form="true, false",
    default_text="`true` in streams, `false` in batches",
    difference="Not known there.",
)
BOOTSTRAP_SERVERS: Final = Option(
    "kafka.bootstrap.servers",
    parse_addresses,
    None,
    "Brokers to ask first; one that answers is enough. Required.",
    form="host:port,…",
)
SECURITY_PROTOCOL: Final = Option(
    "kafka.security.protocol",
    _parse_plaintext,
    PLAINTEXT,
    "How connections are secured.",
    form="PLAINTEXT",
    difference="TLS and SASL are not served yet.",
)
ACKS: Final = Option(
    "kafka.acks",
    _parse_acks,
    "all",
    "Which replicas must have a record before it counts as written.",
    form="all, -1, 0, 1",
    difference="Always all in-sync replicas; `0` and `1` are taken with a warning.",
)
ENABLE_IDEMPOTENCE: Final = Option(
    "kafka.enable.idempotence",
    parse_boolean,
    True,
    "Whether a batch that is sent again is recognised.",
    form="true, false",
    difference="Always; `false` is taken with a warning.",
)
COMPRESSION_TYPE: Final = Option(
    "kafka.compression.type", _parse_codec, Codec.NONE, "The codec of batches.", form="none, gzip, snappy, lz4, zstd"
)
GZIP_LEVEL: Final = Option(
    "kafka.compression.gzip.level",
    whole_number(-1, 9),
    -1,
    "How hard gzip tries, from 1 to 9; -1 is its own default.",
    form="integer",
)
LZ4_LEVEL: Final = Option(
    "kafka.compression.lz4.level",
    whole_number(1, 17),
    1,
    "How hard lz4 tries, from 1 to 17.",
    form="integer",
    difference="There 9, which is slower for a little less.",
)
ZSTD_LEVEL: Final = Option(
    "kafka.compression.zstd.level",
    whole_number(-131_072, 22),
    3,
    "How hard zstd tries, from -131072 to 22.",
    form="integer",
)
BATCH_SIZE: Final = Option(
    "kafka.batch.size",
    whole_number(0, MOST_BATCH_BYTES),
    DEFAULT_BATCH_BYTES,
    "The most that a batch of more than one record takes before it is compressed, in bytes.",
    form="integer",
    difference="There 16,384. Larger batches are written, compressed and read faster.",
)
MAX_REQUEST_SIZE: Final = Option(
    "kafka.max.request.size",
    whole_number(1024, MOST_REQUEST_BYTES),
    DEFAULT_REQUEST_BYTES,
    "The most that the batches of one request take, and with it one record, in bytes.",
    form="integer",
    difference="There 1,048,576. The topic's own limit holds all the same.",
)
BUFFER_MEMORY: Final = Option(
    "kafka.buffer.memory",
    whole_number(1024),
    DEFAULT_BUFFER_BYTES,
    "About how much a task gathers that is not acknowledged yet, in bytes.",
    form="integer",
)
DELIVERY_TIMEOUT_MS: Final = Option(
    "kafka.delivery.timeout.ms",
    whole_number(1, INT_MAX),
    DEFAULT_DELIVERY_TIMEOUT_MS,
    "How long a batch is tried before the task fails, from its first attempt on, in milliseconds.",
    form="integer",
)
MAX_BLOCK_MS: Final = Option(
    "kafka.max.block.ms",
    whole_number(1, INT_MAX),
    DEFAULT_MAX_BLOCK_MS,
    "How long brokers are tried for topics and a producer id, in milliseconds.",
    form="integer",
    difference="A topic that does not exist is waited for 10 s.",
)
IGNORE_KEYS: Final = Option(
    "kafka.partitioner.ignore.keys",
    parse_boolean,
    False,
    "Whether rows are spread over the partitions even if they have keys.",
    form="true, false",
)

OWN: Final[tuple[Option[Any], ...]] = (TOPIC, INCLUDE_HEADERS, DEDUPLICATION_HEADER)
SERVED: Final[tuple[Option[Any], ...]] = (
    BOOTSTRAP_SERVERS,
    CLIENT_ID,
    SECURITY_PROTOCOL,
    ACKS,
    ENABLE_IDEMPOTENCE,
    COMPRESSION_TYPE,
    GZIP_LEVEL,
    LZ4_LEVEL,
    ZSTD_LEVEL,
    BATCH_SIZE,
    MAX_REQUEST_SIZE,
    BUFFER_MEMORY,
    REQUEST_TIMEOUT_MS,
    DELIVERY_TIMEOUT_MS,
    MAX_BLOCK_MS,
    RETRY_BACKOFF_MS,
    RETRY_BACKOFF_MAX_MS,
    IGNORE_KEYS,
)
"""In the order of the documentation."""

REFUSED: Final = {
    "kafka.key.serializer": "is not supported: keys are written as the bytes, or the UTF-8 text, that the column has",
    "kafka.value.serializer": "is not supported: values are written as the bytes, or the UTF-8 text, that the column"
    " has",
    "kafka.transactional.id": "is not supported: there are no transactions yet; 'deduplicationHeader' lets consumers"
    " drop what comes twice",
    "kafka.partitioner.class": "is not supported: no Java class chooses the partition; the column 'partition' does, or"
    " else the key, as Kafka's default partitioner has it",
    "kafka.interceptor.classes": "is not supported: no Java class sees the records",
}
"""What would change the records if it were followed, and what to do instead."""

OF_SPARK: Final = ("checkpointLocation", "queryName", "path")
"""What Spark itself puts among the options, or takes from there."""

_READ_OPTIONS: Final = tuple(option.name for option in OPTIONS)

WITHOUT_EFFECT: Final = (
    (
        kafka_settings.WITHOUT_EFFECT
        | {option.name for option in kafka_settings.SERVED}
        | set(kafka_settings.REFUSED)
        | {"kafka.metadata.max.idle.ms"}
    )
    - {option.name for option in SERVED}
    - set(REFUSED)
)
"""What Kafka knows and a writer has no use for. Kafka's producer only warns of a consumer's configs, too."""


@attrs.frozen
class WriteOptions:
    """What a job writes, and how. ``topic`` is None where the rows name theirs."""

    topic: str | None
    include_headers: bool
    deduplication_header: bool
    producer: ProducerSettings


def write_options(options: Mapping[str, str], mode: Mode) -> WriteOptions:
    """Read the options of a writer.

    Raises:
        OptionError: one is refused, unknown, missing, or has a value that means nothing.
    """
    given = GivenOptions(options)
    _check_names(given)
    given.read(SECURITY_PROTOCOL)
    _warn_of_more(given)
    deduplicate = given.read(DEDUPLICATION_HEADER)
    return WriteOptions(
        topic=given.read(TOPIC),
        include_headers=given.read_required(INCLUDE_HEADERS),
        deduplication_header=mode is Mode.STREAM if deduplicate is None else deduplicate,
        producer=_producer_settings(given),
    )


def _producer_settings(given: GivenOptions) -> ProducerSettings:
    servers = given.read(BOOTSTRAP_SERVERS)
    if servers is None:
        raise given.refuse(BOOTSTRAP_SERVERS, "is required: it says where the brokers are")
    codec = given.read_required(COMPRESSION_TYPE)
    return ProducerSettings(
        bootstrap_servers=servers,
        client_id=given.read_required(CLIENT_ID),
        codec=codec,
        compression_level=_compression_level(given, codec),
        batch_size=max(1, given.read_required(BATCH_SIZE)),
        max_request_size=given.read_required(MAX_REQUEST_SIZE),
        buffer_memory=given.read_required(BUFFER_MEMORY),
        request_timeout_ms=given.read_required(REQUEST_TIMEOUT_MS),
        delivery_timeout_ms=given.read_required(DELIVERY_TIMEOUT_MS),
        max_block_ms=given.read_required(MAX_BLOCK_MS),
        retry_backoff_ms=given.read_required(RETRY_BACKOFF_MS),
        retry_backoff_max_ms=given.read_required(RETRY_BACKOFF_MAX_MS),
        ignore_keys=given.read_required(IGNORE_KEYS),
        option_prefix="kafka.",
    )


def _compression_level(given: GivenOptions, codec: Codec) -> int | None:
    levels = {Codec.GZIP: GZIP_LEVEL, Codec.LZ4: LZ4_LEVEL, Codec.ZSTD: ZSTD_LEVEL}
    values = {of: given.read_required(option) for of, option in levels.items()}
    level = values.get(codec)
    return None if codec is Codec.GZIP and level in (-1, 0) else level


def _warn_of_more(given: GivenOptions) -> None:
    if given.read(ACKS) in LESS_THAN_ALL:
        log.warning("%s is %s: records are acknowledged by all in-sync replicas", ACKS.name, given.text(ACKS))
    if not given.read(ENABLE_IDEMPOTENCE):
        log.warning("%s is false: records are written idempotently all the same", ENABLE_IDEMPOTENCE.name)


def _check_names(given: GivenOptions) -> None:
    """Refuse what cannot be and tell of what does nothing."""
    known = {option.name.lower(): option.name for option in (*OWN, *SERVED)}
    known |= {name.lower(): name for name in (*_READ_OPTIONS, *OF_SPARK)}
    without_effect = []
    for name in sorted(given.names()):
        if name in REFUSED:
            raise OptionError(given.spelling(name), REFUSED[name])
        if name in known:
            continue
        if name in WITHOUT_EFFECT or name.startswith(SECURITY_PREFIXES):
            without_effect.append(name)
            continue
        what = "Kafka knows no such config" if name.startswith(PREFIX) else "there is no such option for writing"
        suggestions = {*known.values(), *WITHOUT_EFFECT, *REFUSED}
        raise OptionError(given.spelling(name), f"{what}{hint(name, suggestions)}")
    if without_effect:
        log.warning("these options have no effect in writing: %s", ", ".join(without_effect))
