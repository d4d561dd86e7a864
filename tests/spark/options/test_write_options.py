from __future__ import annotations

import logging
import re
from typing import Any

import pytest

from kafka_wire.records.compression import Codec
from trio_broker.client.address import Address
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.client.security import OF_JAVA
from trio_broker.spark.errors import OptionError
from trio_broker.spark.exactly_once.lost_transactions import LostTransactions
from trio_broker.spark.options.kafka_options import REFUSED_IN_WRITING, UNUSED_IN_WRITING, WRITE_OPTIONS
from trio_broker.spark.options.option import Mode
from trio_broker.spark.options.write_options import WriteOptions, write_options

SERVERS = {"kafka.bootstrap.servers": "a:1,b:2"}
ADDRESSES = (Address("a", 1), Address("b", 2))


def read(mode: Mode = Mode.BATCH, **options: str) -> WriteOptions:
    """Read options, which have ``__`` for the dots."""
    return write_options({**SERVERS, **{name.replace("__", "."): value for name, value in options.items()}}, mode)


def test_defaults():
    assert read() == WriteOptions(
        topic=None,
        create_topics=False,
        include_headers=True,
        include_timestamp=False,
        deduplication_header=False,
        producer=ProducerSettings(
            ADDRESSES, client_id="trio-broker-spark", option_prefix="kafka.", allow_auto_topic_creation=False
        ),
        is_exactly_once=False,
        write_id=None,
        commit_topic="trio-broker-spark-commits",
        lost_transactions=LostTransactions.FAIL,
    )


def test_streams_have_the_deduplication_header_by_default():
    assert read(Mode.STREAM).deduplication_header
    assert not read(Mode.STREAM, deduplicationHeader="false").deduplication_header
    assert read(Mode.BATCH, deduplicationHeader="true").deduplication_header


def test_transactions_need_no_header():
    assert not read(Mode.STREAM, deliveryGuarantee="exactly-once").deduplication_header
    assert read(Mode.STREAM, deliveryGuarantee="exactly-once").is_exactly_once


def test_only_a_batch_in_transactions_has_a_name():
    assert read(deliveryGuarantee="exactly-once", writeId="january").write_id == "january"
    with pytest.raises(OptionError, match="a stream is known by its checkpoint"):
        read(Mode.STREAM, deliveryGuarantee="exactly-once", writeId="january")
    with pytest.raises(OptionError, match="means nothing unless 'deliveryGuarantee' is exactly-once"):
        read(writeId="january")


def test_every_option_arrives_at_its_place():
    options = read(
        topic=" orders ",
        createTopics="true",
        includeHeaders="false",
        includeTimestamp="true",
        kafka__client__id="me",
        kafka__compression__type="zstd",
        kafka__compression__zstd__level="9",
        kafka__batch__size="1000",
        kafka__max__request__size="2000",
        kafka__buffer__memory="3000",
        kafka__request__timeout__ms="4000",
        kafka__delivery__timeout__ms="5000",
        kafka__max__block__ms="6000",
        kafka__transaction__timeout__ms="7000",
        kafka__retry__backoff__ms="70",
        kafka__retry__backoff__max__ms="80",
        kafka__partitioner__ignore__keys="true",
    )

    assert options.topic == "orders"
    assert options.create_topics
    assert not options.include_headers
    assert options.include_timestamp
    assert options.producer == ProducerSettings(
        bootstrap_servers=ADDRESSES,
        client_id="me",
        codec=Codec.ZSTD,
        compression_level=9,
        batch_size=1000,
        max_request_size=2000,
        buffer_memory=3000,
        request_timeout_ms=4000,
        delivery_timeout_ms=5000,
        max_block_ms=6000,
        transaction_timeout_ms=7000,
        retry_backoff_ms=70,
        retry_backoff_max_ms=80,
        ignore_keys=True,
        allow_auto_topic_creation=False,
        option_prefix="kafka.",
    )


def test_names_count_whatever_their_case():
    assert write_options({"KAFKA.Bootstrap.Servers": "a:1", "TOPIC": "t"}, Mode.BATCH).topic == "t"


@pytest.mark.parametrize("codec", list(Codec), ids=lambda codec: codec.name)
def test_every_codec_has_its_own_level(codec: Codec):
    levels: dict[str, Any] = {"kafka__compression__gzip__level": "4", "kafka__compression__lz4__level": "5"}

    options = read(kafka__compression__type=codec.name.lower(), **levels)

    expected = {Codec.GZIP: 4, Codec.LZ4: 5, Codec.ZSTD: 3}
    assert (options.producer.codec, options.producer.compression_level) == (codec, expected.get(codec))


@pytest.mark.parametrize("level", ["-1", "0"])
def test_gzips_own_default_level_is_nobodys(level: str):
    options = read(kafka__compression__type="gzip", kafka__compression__gzip__level=level)

    assert options.producer.compression_level is None


def test_a_batch_of_no_bytes_is_one_record():
    assert read(kafka__batch__size="0").producer.batch_size == 1


# --- Warnings ---


@pytest.mark.parametrize(
    ("options", "warning"),
    [
        ({"kafka__acks": "1"}, "kafka.acks is 1: records are acknowledged by all in-sync replicas"),
        ({"kafka__acks": "0"}, "kafka.acks is 0: records are acknowledged by all in-sync replicas"),
        (
            {"kafka__enable__idempotence": "false"},
            "kafka.enable.idempotence is false: records are written idempotently all the same",
        ),
        (
            {"kafka__linger__ms": "5"},
            "these options have no effect in writing: kafka.linger.ms",
        ),
        (
            {"kafka__auto__offset__reset": "earliest"},
            "these options have no effect in writing: kafka.auto.offset.reset",
        ),
    ],
)
def test_what_is_not_followed_is_taken_with_a_warning(
    options: dict[str, Any], warning: str, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.WARNING):
        read(**options)

    assert caplog.messages == [warning]


@pytest.mark.parametrize(
    "options",
    [
        {"kafka__acks": "all"},
        {"kafka__acks": "-1"},
        {"kafka__enable__idempotence": "true"},
        {"checkpointLocation": "/c", "path": "/p"},
        {"subscribe": "orders", "startingOffsets": "earliest"},
    ],
)
def test_what_is_as_it_is_anyway_is_taken_without_a_word(options: dict[str, Any], caplog: pytest.LogCaptureFixture):
    with caplog.at_level(logging.WARNING):
        read(**options)

    assert caplog.messages == []


# --- Errors ---


def test_brokers_must_be_named():
    with pytest.raises(OptionError, match=r"option 'kafka.bootstrap.servers': is required"):
        write_options({"topic": "t"}, Mode.BATCH)


@pytest.mark.parametrize("name", sorted(REFUSED_IN_WRITING))
def test_what_would_change_the_records_is_refused(name: str):
    with pytest.raises(OptionError, match=rf"option '{re.escape(name)}': is not supported: "):
        write_options({**SERVERS, name: "x"}, Mode.STREAM)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("kafka.acks", "2", "'2' is none of all, -1, 0, 1"),
        ("kafka.compression.type", "brotli", "'brotli' is none of none, gzip, snappy, lz4, zstd"),
        ("kafka.compression.zstd.level", "23", "23 is too large; the most is 22"),
        ("kafka.security.protocol", "TLS", "'TLS' is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("kafka.batch.size", "many", "'many' is not a whole number"),
        ("kafka.batch.size", "100000000", "100000000 is too large"),
        ("kafka.delivery.timeout.ms", "0", "0 is too small; the least is 1"),
        ("deduplicationHeader", "yes", "'yes' is neither true nor false"),
        ("topic", "  ", "is empty"),
        ("kafka.compresion.type", "zstd", "Kafka knows no such config; did you mean 'kafka.compression.type'?"),
        ("deduplicateHeader", "true", "there is no such option for writing; did you mean 'deduplicationHeader'?"),
        ("bootstrap.servers", "a:1", "there is no such option for writing; did you mean 'kafka.bootstrap.servers'?"),
    ],
)
def test_errors_name_the_option(name: str, value: str, reason: str):
    with pytest.raises(OptionError) as raised:
        write_options({**SERVERS, name: value}, Mode.BATCH)
    assert str(raised.value).startswith(f"option {name!r}: {reason}")


def test_levels_of_other_codecs_are_checked_all_the_same():
    with pytest.raises(OptionError, match=r"kafka.compression.lz4.level"):
        read(kafka__compression__type="none", kafka__compression__lz4__level="99")


KAFKAS_PRODUCER_CONFIGS = """
    acks batch.size bootstrap.servers buffer.memory client.dns.lookup client.id compression.gzip.level
    compression.lz4.level compression.type compression.zstd.level config.providers connections.max.idle.ms
    delivery.timeout.ms enable.idempotence enable.metrics.push interceptor.classes key.serializer linger.ms max.block.ms
    max.in.flight.requests.per.connection max.request.size metadata.max.age.ms metadata.max.idle.ms
    metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms partitioner.adaptive.partitioning.enable
    partitioner.availability.timeout.ms partitioner.class partitioner.ignore.keys receive.buffer.bytes
    reconnect.backoff.max.ms reconnect.backoff.ms request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms
    security.protocol security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms
    socket.connection.setup.timeout.ms transaction.two.phase.commit.enable transactional.id
    value.serializer
"""


@pytest.mark.parametrize("name", KAFKAS_PRODUCER_CONFIGS.split())
def test_every_config_of_kafkas_producer_is_known(name: str):
    places: list[Any] = [{option.name for option in WRITE_OPTIONS}, set(REFUSED_IN_WRITING), UNUSED_IN_WRITING]
    places.append({f"kafka.{java}" for java in OF_JAVA})

    assert [f"kafka.{name}" in place for place in places].count(True) == 1
