"""Text to value and back, by the rules of each type."""

from __future__ import annotations

import pytest

from kafka_wire.records.compression import Codec
from tests.cases import each
from trio_broker.config.config_key import ConfigKey, ConfigType, ValueBounds
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS, TOPIC_KEYS
from trio_broker.config.log_config import CleanupPolicy
from trio_broker.config.ssl_config import SslConfig

AUTO_CREATE_TOPICS_ENABLE = BROKER_KEYS["auto.create.topics.enable"]
COMPRESSION_TYPE = BROKER_KEYS["compression.type"]
LOG_CLEANER_MIN_CLEANABLE_RATIO = BROKER_KEYS["log.cleaner.min.cleanable.ratio"]
LOG_CLEANUP_POLICY = BROKER_KEYS["log.cleanup.policy"]
LOG_RETENTION_BYTES = BROKER_KEYS["log.retention.bytes"]
LOG_RETENTION_MS = BROKER_KEYS["log.retention.ms"]
MAX_CONNECTIONS_PER_IP_OVERRIDES = BROKER_KEYS["max.connections.per.ip.overrides"]
NUM_IO_THREADS = BROKER_KEYS["num.io.threads"]


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        (NUM_IO_THREADS, " 12 ", 12),
        (NUM_IO_THREADS, "+12", 12),
        (LOG_RETENTION_BYTES, "-1", -1),
        (AUTO_CREATE_TOPICS_ENABLE, "TRUE", True),
        (AUTO_CREATE_TOPICS_ENABLE, "false", False),
        (LOG_CLEANER_MIN_CLEANABLE_RATIO, "0.25", 0.25),
        (LOG_CLEANUP_POLICY, "compact , delete", CleanupPolicy(delete=True, compact=True)),
        (LOG_CLEANUP_POLICY, "", CleanupPolicy(delete=False)),
        (COMPRESSION_TYPE, "zstd", Codec.ZSTD),
        (MAX_CONNECTIONS_PER_IP_OVERRIDES, "10.0.0.1:5, ::1:7", {"10.0.0.1": 5, "::1": 7}),
        (MAX_CONNECTIONS_PER_IP_OVERRIDES, "[::1]:7", {"::1": 7}),
        (MAX_CONNECTIONS_PER_IP_OVERRIDES, "", {}),
    ],
)
def test_text_is_read_by_the_rules_of_its_type(key, text, value):
    assert key.parse(text) == value


@pytest.mark.parametrize(
    ("key", "text", "reason"),
    [
        (NUM_IO_THREADS, "eight", "num.io.threads: 'eight' is refused: the value must be a whole number"),
        (NUM_IO_THREADS, "1_000", "the value must be a whole number"),
        (NUM_IO_THREADS, "٣", "the value must be a whole number"),
        (NUM_IO_THREADS, "0", "the value must be between 1 and 256"),
        (NUM_IO_THREADS, str(2**31), "the value must fit into 32 bits"),
        (LOG_RETENTION_BYTES, str(2**63), "the value must fit into 64 bits"),
        (LOG_RETENTION_MS, "0", "the value must be -1, or at least 1"),
        (AUTO_CREATE_TOPICS_ENABLE, "yes", "the value must be true or false"),
        (LOG_CLEANER_MIN_CLEANABLE_RATIO, "1.5", "the value must be between 0.0 and 1.0"),
        (LOG_CLEANER_MIN_CLEANABLE_RATIO, "nan", "the value must be between 0.0 and 1.0"),
        (LOG_CLEANER_MIN_CLEANABLE_RATIO, "half", "the value must be a number"),
        (LOG_CLEANUP_POLICY, "shred", "a list of delete, compact"),
        (MAX_CONNECTIONS_PER_IP_OVERRIDES, "\ud800:5", "the value must be text that UTF-8 can encode"),
        (COMPRESSION_TYPE, "brotli", "one of uncompressed, zstd"),
        (MAX_CONNECTIONS_PER_IP_OVERRIDES, "10.0.0.1", "'10.0.0.1' is not host:count"),
        (MAX_CONNECTIONS_PER_IP_OVERRIDES, "10.0.0.1:many", "'10.0.0.1:many' is not host:count"),
    ],
)
def test_a_value_outside_the_limits_is_refused_with_the_reason(key, text, reason):
    with pytest.raises(ConfigError) as refusal:
        key.parse(text)
    assert reason in str(refusal.value)


def test_a_value_too_long_for_a_string_of_the_protocol_is_refused_and_shown_in_part():
    """Neither the metadata log nor an answer could hold it."""
    key = ConfigKey(name="text", type=ConfigType.STRING, default="", documentation="A test.")
    assert key.parse("€" * 10_922) == "€" * 10_922
    with pytest.raises(ConfigError, match=r"^text: '€{100}…' is refused: 32769 bytes, at most 32767 are taken$"):
        key.parse("€" * 10_923)


def test_a_refusal_never_shows_a_secret():
    assert "hunter2" not in repr(SslConfig(ssl_keystore_password="hunter2"))
    key = ConfigKey(name="secret", type=ConfigType.INT, default=0, sensitive=True, documentation="A test.")
    with pytest.raises(ConfigError) as refusal:
        key.parse("hunter2")
    assert "hunter2" not in str(refusal.value)


@each("key", [*BROKER_KEYS.values(), *TOPIC_KEYS.values()])
def test_every_default_is_valid_and_survives_the_way_through_text(key):
    if key.default is not None:
        assert key.parse(key.text_of(key.default)) == key.default


@each("key", [*BROKER_KEYS.values(), *TOPIC_KEYS.values()])
def test_every_key_is_documented_in_one_line(key):
    assert key.documentation.endswith(".")
    assert "\n" not in key.documentation


@pytest.mark.parametrize("key", [key for key in BROKER_KEYS.values() if key.inherits_default], ids=lambda key: key.name)
def test_an_inherited_default_is_the_last_fallbacks_default_converted(key):
    last = key.fallbacks[-1]
    assert key.default == last.convert(last.key.default)


def test_defaults_people_rely_on_are_kafkas():
    """Applications rely on Kafka's defaults without naming them."""
    defaults = {name: BROKER_KEYS[name].default for name in BROKER_KEYS}
    assert defaults["num.partitions"] == 1
    assert defaults["auto.create.topics.enable"] is True
    assert defaults["log.retention.ms"] == 7 * 24 * 3_600_000
    assert defaults["log.segment.delete.delay.ms"] == 60_000
    assert defaults["socket.request.max.bytes"] == 104_857_600
    assert defaults["fetch.max.bytes"] == 57_671_680
    assert defaults["connections.max.idle.ms"] == 600_000
    assert defaults["message.max.bytes"] == 1_048_588
    assert defaults["log.message.timestamp.after.max.ms"] == 3_600_000
    assert defaults["queued.max.requests"] == 500
    assert (defaults["num.network.threads"], defaults["num.io.threads"]) == (3, 8)


def test_a_double_without_limit_is_written_as_java_writes_it():
    key = BROKER_KEYS["log.cleaner.io.max.bytes.per.second"]
    assert key.text_of(key.default) == "1.7976931348623157E308"
    assert key.text_of(0.5) == "0.5"


@pytest.mark.parametrize(
    ("key", "bounds"),
    [
        (NUM_IO_THREADS, ValueBounds(minimum=1, maximum=256)),
        (LOG_CLEANER_MIN_CLEANABLE_RATIO, ValueBounds(minimum=0.0, maximum=1.0)),
        (LOG_RETENTION_MS, ValueBounds(minimum=1, special=-1)),
        (BROKER_KEYS["compression.gzip.level"], ValueBounds(minimum=1, maximum=9, special=-1)),
        (COMPRESSION_TYPE, ValueBounds(choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))),
        (LOG_CLEANUP_POLICY, ValueBounds(choices=("delete", "compact"))),
        (AUTO_CREATE_TOPICS_ENABLE, ValueBounds()),
    ],
)
def test_limits_are_known_in_parts(key, bounds):
    assert key.bounds == bounds


@each("key", [*BROKER_KEYS.values(), *TOPIC_KEYS.values()])
def test_the_limits_in_parts_are_those_that_are_checked(key):
    bounds = key.bounds
    is_list = key.type is ConfigType.LIST and bounds.choices
    words = [",".join(bounds.choices)] if is_list else bounds.choices
    numbers = [each for each in (bounds.minimum, bounds.maximum, bounds.special) if each is not None]
    refused = [limit + step for limit, step in ((bounds.minimum, -1), (bounds.maximum, 1)) if limit is not None]
    for value in (*numbers, *words):
        key.parse(str(value))
    for value in refused:
        if value != bounds.special:
            with pytest.raises(ConfigError):
                key.parse(str(value))
