"""The options of a reading job: defaults, rules, and errors that name what is wrong."""

from __future__ import annotations

import logging
import pickle
from pathlib import Path

import attrs
import pytest

from kafka_wire.sasl.mechanisms import SaslCredentials
from trio_broker.client.address import Address
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.spark.errors import OptionError
from trio_broker.spark.options.documentation import render
from trio_broker.spark.options.kafka_options import READ_OPTIONS, REFUSED_IN_READING, UNUSED_IN_READING
from trio_broker.spark.options.kafka_settings import KafkaSettings, read_kafka_settings
from trio_broker.spark.options.offset_specs import (
    Earliest,
    GlobalTimestamp,
    Latest,
    NoMatch,
    SpecificOffsets,
    TimestampsByPartition,
)
from trio_broker.spark.options.option import DURATION_MS, GivenOptions, Mode
from trio_broker.spark.options.read_option_table import OPTIONS
from trio_broker.spark.options.read_options import (
    Assign,
    ReadOptions,
    Subscribe,
    SubscribePattern,
    TransportKind,
    read_columns,
    read_options,
)
from trio_broker.spark.options.write_options import OWN_OPTIONS as OPTIONS_OF_THE_SINK
from trio_broker.spark.schema import COLUMNS

PAGE = Path(__file__).parents[3] / "docs" / "spark-options.md"
ORDERS_0 = TopicPartition("orders", 0)
ORDERS_1 = TopicPartition("orders", 1)
NEEDED = {"kafka.bootstrap.servers": "here:9092", "subscribe": "orders"}


def batch(**options: str) -> ReadOptions:
    return read_options(NEEDED | options, Mode.BATCH)


def stream(**options: str) -> ReadOptions:
    return read_options(NEEDED | options, Mode.STREAM)


def refusal(options: dict[str, str], mode: Mode = Mode.BATCH) -> OptionError:
    with pytest.raises(OptionError) as caught:
        read_options(options, mode)
    return caught.value


# The page


def test_the_page_is_up_to_date():
    """Else write it again: ``python -m trio_broker.spark.options.documentation``."""
    assert PAGE.read_text(encoding="utf-8") == render()


def test_every_option_is_on_the_page():
    page = render()
    assert all(f"| `{option.name}` |" in page for option in (*OPTIONS, *READ_OPTIONS))


def test_no_two_options_have_one_name():
    names = [option.name.lower() for option in (*OPTIONS, *READ_OPTIONS)] + [*REFUSED_IN_READING, *UNUSED_IN_READING]
    assert len(names) == len(set(names))


# Defaults


def test_a_batch_reads_everything_when_nothing_else_is_said():
    options = batch()
    assert (options.starting, options.ending) == (Earliest(), Latest())
    assert options == ReadOptions(KafkaSettings((Address("here", 9092),)), Subscribe(("orders",)), Earliest(), Latest())


def test_a_stream_reads_what_is_to_come_when_nothing_else_is_said():
    options = stream()
    assert (options.starting, options.ending) == (Latest(), None)
    assert (options.max_offsets_per_trigger, options.max_trigger_delay_ms) == (None, 15 * 60_000)


def test_only_committed_records_are_read_by_default():
    """Other than with Spark's own source, on purpose."""
    assert batch().read_committed
    assert not batch(**{"kafka.isolation.level": "READ_UNCOMMITTED"}).read_committed


def test_the_declared_defaults_are_those_of_the_settings():
    assert read_kafka_settings(GivenOptions({})) == KafkaSettings(())


def test_options_travel_to_the_workers():
    options = batch(startingOffsets='{"orders": {"0": 1}}')
    assert pickle.loads(pickle.dumps(options)) == options


# Names


def test_names_are_compared_without_regard_to_case():
    options = read_options(
        {"KAFKA.Bootstrap.Servers": "here:9092", "SUBSCRIBE": "orders", "failondataloss": "false"}, Mode.BATCH
    )
    assert not options.fail_on_data_loss


@pytest.mark.parametrize("name", ["minpartitions", "minPartitions", "MINPARTITIONS"])
def test_an_error_spells_the_name_as_the_user_did_where_that_is_known(name):
    """Spark hands all names over in lower case."""
    error = refusal(NEEDED | {name: "many"})
    assert error.option == ("minPartitions" if name.islower() else name)


def test_a_name_given_twice_is_refused():
    assert "is given twice" in str(refusal({**NEEDED, "Subscribe": "orders"}))


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("starting_offsets", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("subscribe_pattern", "subscribePattern"),
        ("topics", None),
        ("bootstrap.servers", "kafka.bootstrap.servers"),
        ("group.id", "kafka.group.id"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("kafka.max.poll.record", "kafka.max.poll.records"),
        ("kafka.sasl", None),
        ("kafka.", None),
    ],
)
def test_an_unknown_name_is_refused_with_what_it_may_have_meant(name, meant):
    error = refusal(NEEDED | {name: "1"})
    assert error.option == name
    assert str(error).endswith(f"did you mean {meant!r}?") if meant else "did you mean" not in str(error)


def test_options_of_the_sink_and_of_catalogs_come_along():
    assert batch(topic="orders", deduplicationHeader="true", **{"serialization.format": "1"}) == batch()
    for option in OPTIONS_OF_THE_SINK:
        assert batch(**{option.name: "true"}).selection == Subscribe(("orders",))


# What to read


def test_the_three_ways_to_say_what_is_read():
    servers = {"kafka.bootstrap.servers": "here:9092"}
    cases = {
        "assign": (' {"orders": [1, 0]} ', Assign((ORDERS_0, ORDERS_1))),
        "subscribe": (" orders , a,, orders", Subscribe(("a", "orders"))),
        "subscribePattern": (" or.*s ", SubscribePattern("or.*s")),
    }
    for name, (text, selection) in cases.items():
        assert read_options(servers | {name: text}, Mode.BATCH).selection == selection


def test_a_pattern_is_found_anywhere_in_a_name_unless_it_is_bound():
    names = ("orders", "orders2", "xorders", "pay", "payments", "other")
    found = [name for name in names if SubscribePattern("orders|^pay$").matches(name)]
    assert found == ["orders", "orders2", "xorders", "pay"]


@pytest.mark.parametrize(
    ("options", "option", "text"),
    [
        ({}, "subscribe", "nothing says what to read; give one of assign, subscribe, subscribePattern"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "subscribe", "'assign' is given, too"),
        ({"subscribe": "a", "subscribePattern": "a"}, "subscribePattern", "'subscribe' is given, too"),
        ({"subscribe": ""}, "subscribe", "is empty"),
        ({"subscribe": " , ,"}, "subscribe", "is empty"),
        ({"assign": ""}, "assign", "is no JSON"),
        ({"assign": "a-0"}, "assign", 'expected {"orders": [0, 1]}'),
        ({"subscribePattern": " "}, "subscribePattern", "is empty"),
        ({"subscribePattern": "a("}, "subscribePattern", "is no regular expression"),
    ],
)
def test_what_to_read_must_be_said_once_and_mean_something(options, option, text):
    error = refusal({"kafka.bootstrap.servers": "here:9092"} | options)
    assert error.option == option
    assert text in str(error)


# Where to begin and to end

TIMES_JSON = '{"orders": {"0": 1000}}'
OFFSETS_JSON = '{"orders": {"0": 5}}'


@pytest.mark.parametrize(
    ("options", "spec", "option"),
    [
        ({"startingOffsets": "earliest"}, Earliest(), "startingOffsets"),
        ({"startingOffsets": " EARLIEST "}, Earliest(), "startingOffsets"),
        ({"startingOffsets": OFFSETS_JSON}, SpecificOffsets({ORDERS_0: 5}), "startingOffsets"),
        (
            {"startingOffsets": OFFSETS_JSON, "startingOffsetsByTimestamp": TIMES_JSON},
            TimestampsByPartition({ORDERS_0: 1000}),
            "startingOffsetsByTimestamp",
        ),
        (
            {"startingOffsetsByTimestamp": TIMES_JSON, "startingTimestamp": "7"},
            GlobalTimestamp(7),
            "startingTimestamp",
        ),
        (
            {"startingOffsets": "latest", "startingTimestamp": "7", "startingOffsetsByTimestampStrategy": "LATEST"},
            GlobalTimestamp(7, NoMatch.LATEST),
            "startingTimestamp",
        ),
        ({"startingOffsets": "nonsense", "startingTimestamp": "7"}, GlobalTimestamp(7), "startingTimestamp"),
    ],
)
def test_the_strongest_start_counts_and_the_others_are_not_read(options, spec, option):
    assert (batch(**options).starting, batch(**options).starting_option) == (spec, option)


@pytest.mark.parametrize(
    ("options", "spec", "option"),
    [
        ({"endingOffsets": "latest"}, Latest(), "endingOffsets"),
        ({"endingOffsets": OFFSETS_JSON}, SpecificOffsets({ORDERS_0: 5}), "endingOffsets"),
        ({"endingOffsets": '{"orders": {"0": -1}}'}, SpecificOffsets({ORDERS_0: -1}), "endingOffsets"),
        (
            {"endingOffsets": OFFSETS_JSON, "endingOffsetsByTimestamp": TIMES_JSON},
            TimestampsByPartition({ORDERS_0: 1000}),
            "endingOffsetsByTimestamp",
        ),
        ({"endingOffsetsByTimestamp": TIMES_JSON, "endingTimestamp": "9"}, GlobalTimestamp(9), "endingTimestamp"),
    ],
)
def test_the_strongest_end_counts_and_the_others_are_not_read(options, spec, option):
    assert (batch(**options).ending, batch(**options).ending_option) == (spec, option)


def test_a_weaker_option_that_does_nothing_is_reported(caplog):
    batch(startingTimestamp="7", startingOffsets="earliest")
    assert "startingTimestamp is stronger than startingOffsets" in caplog.text


@pytest.mark.parametrize(
    ("options", "option", "text"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets", "a batch query cannot begin at the latest offset"),
        ({"startingOffsets": '{"orders": {"1": -1}}'}, "startingOffsets", "orders-1: a batch query cannot begin"),
        ({"endingOffsets": "earliest"}, "endingOffsets", "a query cannot end at the earliest offset"),
        ({"endingOffsets": '{"orders": {"1": -2}}'}, "endingOffsets", "orders-1: a query cannot end at the earliest"),
        ({"startingOffsets": '{"orders": {"1": -9}}'}, "startingOffsets", "orders-1: -9 is no offset"),
        ({"startingOffsets": '{"orders": {"1": 1.5}}'}, "startingOffsets", "orders-1: 1.5 is not a whole number"),
        ({"startingTimestamp": "soon"}, "startingTimestamp", "'soon' is not a whole number"),
        ({"startingTimestamp": "-1"}, "startingTimestamp", "-1 is no time"),
        ({"startingTimestamp": "9223372036854775808"}, "startingTimestamp", "needs more than 64 bits"),
        ({"startingOffsetsByTimestampStrategy": "fail"}, "startingOffsetsByTimestampStrategy", "none of error, latest"),
        ({"startingTimestamp": "8", "endingTimestamp": "7"}, "endingTimestamp", "7 is before the start, 8"),
        (
            {"startingOffsets": OFFSETS_JSON, "endingOffsets": '{"orders": {"0": 4}}'},
            "endingOffsets",
            "orders-0: 4 is before the start, 5",
        ),
        (
            {"startingOffsets": OFFSETS_JSON, "endingOffsets": '{"orders": {"1": 9}}'},
            "endingOffsets",
            "start and end name different partitions: orders-0, orders-1",
        ),
        (
            {"startingOffsetsByTimestamp": TIMES_JSON, "endingOffsetsByTimestamp": '{"orders": {"0": 999}}'},
            "endingOffsetsByTimestamp",
            "orders-0: 999 is before the start, 1000",
        ),
        (
            {"startingOffsetsByTimestamp": TIMES_JSON, "endingOffsetsByTimestamp": '{"a": {"0": 1000}}'},
            "endingOffsetsByTimestamp",
            "start and end name different partitions: a-0, orders-0",
        ),
    ],
)
def test_starts_and_ends_that_cannot_be(options, option, text):
    error = refusal(NEEDED | options)
    assert error.option == option
    assert text in str(error)


@pytest.mark.parametrize(
    ("start", "end"), [('{"orders": {"0": -2}}', OFFSETS_JSON), (OFFSETS_JSON, '{"orders": {"0": -1}}')]
)
def test_sentinels_are_not_compared_with_offsets(start, end):
    batch(startingOffsets=start, endingOffsets=end)


def test_a_stream_may_begin_at_the_latest_offset_of_some_partitions():
    assert stream(startingOffsets='{"orders": {"0": -1}}').starting == SpecificOffsets({ORDERS_0: -1})


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(option):
    error = refusal(NEEDED | {option: "latest"}, Mode.STREAM)
    assert error.option == option
    assert "a streaming query has no end" in str(error)


# Numbers, truth and durations


@pytest.mark.parametrize(
    ("options", "attribute", "value"),
    [
        ({"minPartitions": "12"}, "min_partitions", 12),
        ({"maxRecordsPerPartition": "3000000000"}, "max_records_per_partition", 3_000_000_000),
        ({"maxOffsetsPerTrigger": "5"}, "max_offsets_per_trigger", 5),
        ({"minOffsetsPerTrigger": "5"}, "min_offsets_per_trigger", 5),
        ({"maxTriggerDelay": "2m"}, "max_trigger_delay_ms", 120_000),
        ({"failOnDataLoss": "FALSE"}, "fail_on_data_loss", False),
        ({"includeHeaders": "True"}, "include_headers", True),
        ({"includeHeaders": "true"}, "columns", COLUMNS),
        ({"columns": "offset, value"}, "columns", ("offset", "value")),
        ({"columns": "headers"}, "columns", ("headers",)),
        ({"batchRows": "1"}, "batch_rows", 1),
        ({"verifyCrc": "false"}, "verify_crc", False),
        ({"kafka.check.crcs": "false"}, "verify_crc", False),
        ({"kafka.check.crcs": "false", "verifyCrc": "true"}, "verify_crc", True),
        ({"maxInflatedBytes": "1048576"}, "max_inflated_bytes", 1 << 20),
        ({"kafkaConsumer.pollTimeoutMs": "5"}, "poll_timeout_ms", 5),
        ({"fetchOffset.numRetries": "1"}, "fetch_offset_retries", 1),
        ({"fetchOffset.retryIntervalMs": "0"}, "fetch_offset_retry_interval_ms", 0),
        ({"adminUrl": "http://a:8080, http://b:8080"}, "admin_urls", ("http://a:8080", "http://b:8080")),
        ({"groupIdPrefix": "any"}, "selection", Subscribe(("orders",))),
    ],
)
def test_what_options_set(options, attribute, value):
    assert getattr(stream(**options), attribute) == value


@pytest.mark.parametrize(
    ("option", "value", "text"),
    [
        ("minPartitions", "0", "0 is too small; the least is 1"),
        ("minPartitions", "-1", "-1 is too small"),
        ("minPartitions", "2147483648", "is too large; the most is 2147483647"),
        ("minPartitions", "1.5", "'1.5' is not a whole number"),
        ("minPartitions", "1_000", "'1_000' is not a whole number"),
        ("minPartitions", "٣", "is not a whole number"),
        ("minPartitions", "", "'' is not a whole number"),
        ("maxRecordsPerPartition", "0", "is too small"),
        ("maxOffsetsPerTrigger", "0", "is too small"),
        ("maxOffsetsPerTrigger", "9223372036854775808", "needs more than 64 bits"),
        ("minOffsetsPerTrigger", "-1", "is too small"),
        ("maxTriggerDelay", "1 fortnight", "is not a duration"),
        ("failOnDataLoss", "yes", "'yes' is neither true nor false"),
        ("includeHeaders", "1", "is neither true nor false"),
        ("columns", "", "is empty"),
        ("columns", "value,Value", "'Value' is no column; did you mean value?"),
        ("columns", "value,value", "names value twice"),
        ("batchRows", "0", "is too small"),
        ("batchRows", "99999999", "is too large"),
        ("maxInflatedBytes", "1000", "is too small"),
        ("transport", "mail", "'mail' is none of auto, wire, files"),
        ("adminUrl", "here:8080", "is no address of a web page"),
        ("fetchOffset.numRetries", "0", "is too small"),
        ("kafka.isolation.level", "serializable", "none of read_committed, read_uncommitted"),
        ("kafka.bootstrap.servers", "here:port", "'here:port' is not an address"),
        ("kafka.bootstrap.servers", " , ", "no address is given"),
        ("kafka.fetch.max.bytes", "0", "is too small"),
    ],
)
def test_values_that_mean_nothing(option, value, text):
    error = refusal(NEEDED | {option: value}, Mode.STREAM)
    assert error.option == option
    assert text in str(error)


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0", 0),
        ("250", 250),
        ("1500us", 1),
        ("250ms", 250),
        ("30s", 30_000),
        ("15m", 900_000),
        ("15MIN", 900_000),
        ("2 h", 7_200_000),
        ("1d", 86_400_000),
    ],
)
def test_durations_are_written_as_everywhere_in_spark(text, duration_ms):
    assert DURATION_MS.parse(text) == duration_ms


@pytest.mark.parametrize("text", ["", "m", "-1s", "1.5h", "1w", "PT15M", "1m30s", "99999999999999999999d"])
def test_durations_that_mean_nothing(text):
    with pytest.raises(ValueError, match=r"duration|too long"):
        DURATION_MS.parse(text)


def test_triggers_contradict_each_other_when_the_least_is_above_the_most():
    error = refusal(NEEDED | {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}, Mode.STREAM)
    assert error.option == "minOffsetsPerTrigger"
    stream(minOffsetsPerTrigger="5", maxOffsetsPerTrigger="5")


def test_triggers_of_a_batch_are_reported_and_ignored(caplog):
    batch(maxOffsetsPerTrigger="5", maxTriggerDelay="1s")
    assert "no effect in a batch query: maxOffsetsPerTrigger, maxTriggerDelay" in caplog.text


def test_the_columns_are_known_before_the_rest_is_checked():
    assert read_columns({"columns": "offset"}) == ("offset",)
    assert read_columns({"includeHeaders": "true"}) == COLUMNS


def test_decoding_has_all_that_options_say_about_it():
    options = batch(batchRows="7", verifyCrc="false", maxInflatedBytes="2000000", columns="value")
    decoding = options.decoding()
    assert (decoding.columns, decoding.batch_rows, decoding.verify_crc) == (("value",), 7, False)
    assert decoding.max_inflated_bytes == 2_000_000
    assert options.decoding(("key",)) == attrs.evolve(decoding, columns=("key",))


# Transports


@pytest.mark.parametrize(
    ("options", "transport", "is_offline"),
    [
        ({**NEEDED}, TransportKind.WIRE, False),
        ({**NEEDED, "path": "/data"}, TransportKind.FILES, False),
        ({**NEEDED, "transport": "files"}, TransportKind.FILES, False),
        ({**NEEDED, "transport": "WIRE", "path": "/data"}, TransportKind.WIRE, False),
        ({"subscribe": "orders", "path": "/data"}, TransportKind.FILES, True),
        ({"subscribe": "orders", "path": "/data", "transport": "files"}, TransportKind.FILES, True),
    ],
)
def test_how_the_bytes_come(options, transport, is_offline):
    read = read_options(options, Mode.BATCH)
    assert (read.transport, read.is_offline) == (transport, is_offline)


@pytest.mark.parametrize(
    "options", [{}, {"transport": "files"}, {"transport": "wire"}, {"transport": "wire", "path": "/data"}]
)
def test_without_a_broker_there_must_be_files(options):
    assert refusal({"subscribe": "orders"} | options).option == "kafka.bootstrap.servers"


def test_an_admin_page_belongs_to_a_broker_that_runs():
    error = refusal({"subscribe": "orders", "path": "/data", "adminUrl": "http://here:8080"})
    assert error.option == "adminUrl"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data", ("/data",)),
        ("/a, /b,", ("/a", "/b")),
        ("file:/data", ("/data",)),
        ("file:///data", ("/data",)),
        ("FILE:///data", ("/data",)),
        ("logs", ("logs",)),
        ("C:\\logs", ("C:\\logs",)),
    ],
)
def test_directories_may_be_written_as_addresses(text, path):
    assert batch(path=text).path == path


def test_many_directories_come_as_spark_hands_them_over():
    """``load([…])`` becomes an option of its own."""
    options = read_options({"subscribe": "orders", "paths": '["/a,b", "file:/c"]'}, Mode.BATCH)
    assert (options.path, options.transport) == (("/a,b", "/c"), TransportKind.FILES)
    assert batch(path="/z", paths='["/a"]').path == ("/z", "/a")


@pytest.mark.parametrize("text", ["", "/a", "{}", "[]", "[1]", '[""]', '["s3://bucket"]', "[" * 100_000])
def test_a_list_of_directories_that_means_nothing(text):
    assert refusal(NEEDED | {"paths": text}).option == "paths"


def test_directories_elsewhere_are_refused():
    assert "s3://bucket is not a directory of this machine" in str(refusal(NEEDED | {"path": "s3://bucket"}))


# Options of Kafka's consumer


def test_settings_of_the_consumer_are_read():
    settings = batch(
        **{
            "kafka.client.id": "nightly",
            "kafka.client.rack": "",
            "kafka.group.id": "g",
            "kafka.fetch.min.bytes": "0",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.receive.buffer.bytes": "-1",
            "kafka.security.protocol": "plaintext",
        }
    ).kafka
    assert (settings.client_id, settings.group_id) == ("nightly", "g")
    assert (settings.fetch_min_bytes, settings.max_partition_fetch_bytes) == (0, 1000)


@pytest.mark.parametrize("name", sorted(REFUSED_IN_READING))
def test_what_sparks_own_source_refuses_is_refused(name):
    error = refusal(NEEDED | {name: "anything"})
    assert error.option == name
    assert "is not supported" in str(error)


def test_security_is_that_of_kafkas_clients():
    jaas = 'Module required username="alice" password="hunter2";'
    given = {"kafka.sasl.mechanism": "PLAIN", "kafka.sasl.jaas.config": jaas, "kafka.ssl.truststore.location": "/ca"}
    options = batch(**given, **{"kafka.security.protocol": "SASL_SSL"})
    security = options.kafka.connection.security
    assert security.sasl == SaslCredentials("PLAIN", "alice", "hunter2")
    assert security.tls is not None
    assert security.tls.ssl_truststore_location == "/ca"
    assert "hunter2" not in repr(options)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("kafka.security.protocol", "nonsense", "is none of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("kafka.ssl.engine.factory.class", "C", "this client does not have it"),
        ("kafka.sasl.kerberos.service.name", "kafka", "this client does not have it"),
    ],
)
def test_security_that_there_is_not_is_refused(name, value, reason):
    error = refusal(NEEDED | {name: value})
    assert error.option == name
    assert reason in str(error)


def test_what_does_nothing_is_reported_in_one_warning(caplog):
    with caplog.at_level(logging.WARNING):
        batch(
            **{
                "kafka.session.timeout.ms": "1000",
                "kafka.acks": "all",
            }
        )
    assert [record.getMessage() for record in caplog.records] == [
        "these options have no effect here: kafka.acks, kafka.session.timeout.ms"
    ]


def test_a_group_is_taken_with_a_warning(caplog):
    batch(**{"kafka.group.id": "payments"})
    assert "kafka.group.id is set to 'payments': no group is joined" in caplog.text


def test_nothing_is_logged_about_an_ordinary_job(caplog):
    batch()
    stream(startingOffsets="earliest", maxOffsetsPerTrigger="100")
    assert not caplog.records
