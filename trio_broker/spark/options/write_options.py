"""The options of the sink, from what a user wrote to settings.

docs/spark-sink.md has them in a table that a test compares. Every option is checked in the driver, before a task
starts. What Spark's own Kafka sink refuses is refused. What would ask for less than the sink always gives (``acks=1``)
is accepted with a warning. Options of readers have no effect, so that one set of options may serve a job that reads and
writes.

Source: Kafka's ProducerConfig; KafkaSourceProvider of Spark's connector.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

import attrs

from kafka_wire.records.compression import Codec
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.spark.errors import OptionError
from trio_broker.spark.exactly_once.lost_transactions import LostTransactions
from trio_broker.spark.options import kafka_options as kafka
from trio_broker.spark.options.option import BOOLEAN, TEXT, GivenOptions, Mode, Option, hint, one_of
from trio_broker.spark.options.read_option_table import OPTIONS
from trio_broker.spark.options.security_options import SECURITY_OPTIONS, read_security
from trio_broker.spark.producer.row_ids import HEADER

log = logging.getLogger(__name__)

TOPIC: Final = Option("topic", TEXT, None, "The topic of all rows. It beats the column `topic`.")
CREATE_TOPICS: Final = Option(
    "createTopics",
    BOOLEAN,
    False,
    "Whether a missing topic is created, with the brokers' defaults (Kafka 2.4 or later); otherwise it is an error.",
    difference="There `auto.create.topics.enable` of the brokers decides.",
)
INCLUDE_HEADERS: Final = Option(
    "includeHeaders",
    BOOLEAN,
    True,
    "Whether the column `headers` becomes the records' headers.",
    difference="There an option of the source only; the column is always written.",
)
INCLUDE_TIMESTAMP: Final = Option(
    "includeTimestamp",
    BOOLEAN,
    False,
    "Whether the column `timestamp` becomes the records' time; otherwise that is the time at which they are written.",
    difference="Not known there.",
)
DEDUPLICATION_HEADER: Final = Option(
    "deduplicationHeader",
    BOOLEAN,
    None,
    f"Whether each record gets the header `{HEADER}`, by which consumers drop what a repeated task wrote again.",
    default_text="`true` in streams that are `at-least-once`, otherwise `false`",
    difference="Not known there.",
)


class DeliveryGuarantee(Enum):
    """How often readers of committed records see a row."""

    AT_LEAST_ONCE = "at-least-once"
    EXACTLY_ONCE = "exactly-once"


DELIVERY_GUARANTEE: Final = Option(
    "deliveryGuarantee",
    one_of(DeliveryGuarantee),
    DeliveryGuarantee.AT_LEAST_ONCE,
    "`exactly-once` writes in transactions, which readers with `read_committed` see once each.",
    difference="Not known there.",
)
WRITE_ID: Final = Option(
    "writeId",
    TEXT,
    None,
    "With `exactly-once`, the name of a batch: what was written under a name is not written again.",
    modes=frozenset({Mode.BATCH}),
    difference="Not known there.",
)
COMMIT_TOPIC: Final = Option(
    "commitTopic",
    TEXT,
    "trio-broker-spark-commits",
    "With `exactly-once`, the compacted topic of what drivers decide; it is created if it is missing.",
    difference="Not known there.",
)
LOST_TRANSACTIONS: Final = Option(
    "lostTransactions",
    one_of(LostTransactions),
    LostTransactions.FAIL,
    "With `exactly-once`, what is done about transactions that timed out after the decision to commit them: an error,"
    " or the rows of the repeated tasks, or nothing.",
    difference="Not known there.",
)

OWN_OPTIONS: Final[tuple[Option[Any], ...]] = (
    *(TOPIC, CREATE_TOPICS, INCLUDE_HEADERS, INCLUDE_TIMESTAMP, DEDUPLICATION_HEADER),
    *(DELIVERY_GUARANTEE, WRITE_ID, COMMIT_TOPIC, LOST_TRANSACTIONS),
)

COMPRESSION_LEVELS: Final = {Codec.GZIP: kafka.GZIP_LEVEL, Codec.LZ4: kafka.LZ4_LEVEL, Codec.ZSTD: kafka.ZSTD_LEVEL}

OF_SPARK: Final = ("checkpointLocation", "queryName", "path")
"""What Spark itself puts among the options, or takes from there."""


@attrs.frozen
class WriteOptions:
    """A writing job. ``topic`` is None where the rows name their topics, ``write_id`` where a batch has no name."""

    topic: str | None
    create_topics: bool
    include_headers: bool
    include_timestamp: bool
    deduplication_header: bool
    producer: ProducerSettings
    is_exactly_once: bool
    write_id: str | None
    commit_topic: str
    lost_transactions: LostTransactions


def write_options(options: Mapping[str, str], mode: Mode) -> WriteOptions:
    """Read the options of a writer.

    Raises:
        OptionError: one is refused, unknown, missing, or has a value that means nothing.
    """
    given = GivenOptions(options)
    _check_names(given)
    _warn_of_stronger_guarantees(given)
    deduplicate = given.read(DEDUPLICATION_HEADER)
    is_exactly_once = given.read_required(DELIVERY_GUARANTEE) is DeliveryGuarantee.EXACTLY_ONCE
    write_id = given.read(WRITE_ID)
    if write_id is not None and mode is Mode.STREAM:
        raise given.error(WRITE_ID, "is for batches: a stream is known by its checkpoint")
    if write_id is not None and not is_exactly_once:
        raise given.error(WRITE_ID, f"means nothing unless {DELIVERY_GUARANTEE.name!r} is exactly-once")
    return WriteOptions(
        topic=given.read(TOPIC),
        create_topics=given.read_required(CREATE_TOPICS),
        include_headers=given.read_required(INCLUDE_HEADERS),
        include_timestamp=given.read_required(INCLUDE_TIMESTAMP),
        deduplication_header=(mode is Mode.STREAM and not is_exactly_once if deduplicate is None else deduplicate),
        producer=_producer_settings(given),
        is_exactly_once=is_exactly_once,
        write_id=write_id,
        commit_topic=given.read_required(COMMIT_TOPIC),
        lost_transactions=given.read_required(LOST_TRANSACTIONS),
    )


def _producer_settings(given: GivenOptions) -> ProducerSettings:
    if kafka.BOOTSTRAP_SERVERS not in given:
        raise given.error(kafka.BOOTSTRAP_SERVERS, "is required: it says where the brokers are")
    fields = given.read_fields(ProducerSettings, kafka.WRITE_OPTIONS)
    fields["batch_size"] = max(1, fields["batch_size"])
    return ProducerSettings(
        **fields,
        security=read_security(given),
        compression_level=_compression_level(given, fields["codec"]),
        # Whether the brokers would create a topic never decides: ``createTopics`` does, for any broker.
        allow_auto_topic_creation=False,
        option_prefix=kafka.PREFIX,
    )


def _compression_level(given: GivenOptions, codec: Codec) -> int | None:
    # All levels are read, so that a wrong one is refused even if its codec is not used.
    levels = {each: given.read_required(option) for each, option in COMPRESSION_LEVELS.items()}
    level = levels.get(codec)
    return None if codec is Codec.GZIP and level in (-1, 0) else level


def _warn_of_stronger_guarantees(given: GivenOptions) -> None:
    if not given.read_required(kafka.ACKS).is_all:
        text = given.text(kafka.ACKS)
        log.warning("%s is %s: records are acknowledged by all in-sync replicas", kafka.ACKS.name, text)
    if not given.read(kafka.ENABLE_IDEMPOTENCE):
        log.warning("%s is false: records are written idempotently all the same", kafka.ENABLE_IDEMPOTENCE.name)


def _check_names(given: GivenOptions) -> None:
    """Refuse unknown names, and warn of those without effect."""
    names = [option.name for option in (*OWN_OPTIONS, *kafka.WRITE_OPTIONS, *OPTIONS)]
    known = {name.lower(): name for name in (*names, *OF_SPARK)}
    without_effect = []
    for name in sorted(given.names()):
        if name in kafka.REFUSED_IN_WRITING:
            raise OptionError(given.spelling(name), kafka.REFUSED_IN_WRITING[name])
        if name in known or name.startswith(SECURITY_OPTIONS):
            continue
        if name in kafka.UNUSED_IN_WRITING:
            without_effect.append(name)
            continue
        what = "Kafka knows no such config" if name.startswith(kafka.PREFIX) else "there is no such option for writing"
        suggestions = {*known.values(), *kafka.UNUSED_IN_WRITING, *kafka.REFUSED_IN_WRITING}
        raise OptionError(given.spelling(name), f"{what}{hint(name, suggestions)}")
    if without_effect:
        log.warning("these options have no effect in writing: %s", ", ".join(without_effect))
