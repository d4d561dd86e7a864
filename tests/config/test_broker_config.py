"""Layers, precedence, changes while running."""

from __future__ import annotations

import logging

import pytest

from kafka_wire.error_codes import ErrorCode
from trio_broker.config.broker_config import BrokerConfig, PoolLimits
from trio_broker.config.config_key import ConfigType
from trio_broker.config.entries import ConfigLevel, ConfigScope, ConfigSource, ConfigSynonym, ValueChange
from trio_broker.config.errors import ConfigError
from trio_broker.config.keys import BROKER_KEYS
from trio_broker.config.log_config import MIN_SEGMENT_BYTES
from trio_broker.config.static_settings import StaticSettings

NUM_IO_THREADS = BROKER_KEYS["num.io.threads"]
NUM_NETWORK_THREADS = BROKER_KEYS["num.network.threads"]
QUEUED_MAX_REQUESTS = BROKER_KEYS["queued.max.requests"]


def entry(config, name):
    return next(item for item in config.entries() if item.name == name)


def test_per_broker_wins_over_cluster_default_over_static_over_built_in():
    config = BrokerConfig()
    assert config.socket_server.num_io_threads == 8
    config = BrokerConfig({"num.io.threads": "4"})
    assert config.socket_server.num_io_threads == 4
    config.set_dynamic(ConfigScope.CLUSTER, {"num.io.threads": "5"})
    assert config.socket_server.num_io_threads == 5
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "6"})
    assert config.socket_server.num_io_threads == 6
    config.set_dynamic(ConfigScope.BROKER, {})
    assert config.socket_server.num_io_threads == 5


def test_other_dynamic_layers_make_other_settings_and_leave_these_alone():
    config = BrokerConfig({"num.io.threads": "4"})
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "6"})
    config.try_values({"queued.max.requests": "10"})
    other = config.with_dynamic({ConfigScope.CLUSTER: {"num.io.threads": "5"}, ConfigScope.BROKER: {}})
    assert (other.socket_server.num_io_threads, other.socket_server.queued_max_requests) == (5, 500)
    other.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "7"})
    assert (config.socket_server.num_io_threads, config.socket_server.queued_max_requests) == (6, 10)


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 604_800_000),
        ({"log.retention.hours": "2"}, 7_200_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, 180_000),
        ({"log.retention.hours": "2", "log.retention.minutes": "3", "log.retention.ms": "4"}, 4),
        ({"log.retention.hours": "-1"}, -1),
        ({"log.retention.minutes": "-1"}, -1),
    ],
)
def test_the_smaller_unit_wins(static, retention_ms):
    assert BrokerConfig(static).log.retention_ms == retention_ms


def test_roll_hours_and_scheduler_interval_stand_in_for_their_finer_keys():
    config = BrokerConfig({"log.roll.hours": "1", "log.flush.scheduler.interval.ms": "9"})
    assert config.log.segment_ms == 3_600_000
    assert config.log.flush_ms == 9


def test_log_dirs_wins_over_log_dir():
    assert BrokerConfig({"log.dir": "/a"}).node.log_dirs == ("/a",)
    assert BrokerConfig({"log.dir": "/a", "log.dirs": "/b,/c"}).node.log_dirs == ("/b", "/c")


def test_broker_id_stands_in_for_node_id_and_may_not_contradict_it():
    assert BrokerConfig({"broker.id": "7"}).node.node_id == 7
    assert BrokerConfig({"broker.id": "7", "node.id": "7"}).node.node_id == 7
    with pytest.raises(ConfigError, match=r"node.id is 8 and broker.id is 7"):
        BrokerConfig({"broker.id": "7", "node.id": "8"})


def test_a_deprecated_key_counts_and_gives_a_warning_that_names_the_other():
    config = BrokerConfig(settings_of("broker.id", "7", "server.properties:3"))
    assert config.node.node_id == 7
    assert config.warnings == ["server.properties:3: broker.id is deprecated: use node.id"]
    assert BrokerConfig({"node.id": "7"}).warnings == []


def settings_of(name, text, origin):
    settings = StaticSettings()
    settings.set(name, text, origin, ConfigLevel.FILE)
    return settings


def test_an_unknown_key_is_a_warning_with_its_place():
    config = BrokerConfig(settings_of("zookeeper.connect", "a:2181", "server.properties:3"))
    assert config.warnings == ["server.properties:3: zookeeper.connect is not a key of this broker and is ignored"]


def test_a_bad_static_value_is_refused_with_place_key_and_reason():
    with pytest.raises(ConfigError, match=r"a\.properties:9: num\.io\.threads: 'x' is refused: .* whole number"):
        BrokerConfig(settings_of("num.io.threads", "x", "a.properties:9"))


def test_config_errors_travel_as_invalid_config():
    assert ConfigError("x").code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("name", ["log.retention.hours", "log.retention.minutes"])
def test_a_retention_of_0_hours_or_minutes_is_refused_as_one_of_0_milliseconds_is(name):
    """It would delete all records."""
    with pytest.raises(ConfigError, match=f"{name}: '0' is refused: the value must be negative, or at least 1"):
        BrokerConfig({name: "0"})


def test_either_name_of_the_node_s_id_is_described_with_its_value():
    for name in ("node.id", "broker.id"):
        config = BrokerConfig({name: "7"})
        for each in ("node.id", "broker.id"):
            described = entry(config, each)
            assert (described.value, described.source) == ("7", ConfigSource.STATIC_BROKER_CONFIG)


def test_an_internal_topic_has_segments_that_a_topic_may_have_though_the_key_takes_less():
    config = BrokerConfig({"offsets.topic.segment.bytes": "1", "transaction.state.log.segment.bytes": "1"})
    assert config.group_coordinator.offsets_topic_segment_size == MIN_SEGMENT_BYTES
    assert config.transaction_coordinator.transaction_state_log_segment_size == MIN_SEGMENT_BYTES


@pytest.mark.parametrize(
    ("name", "given", "shown"),
    [
        ("log.preallocate", " TRUE", "true"),
        ("log.cleaner.min.cleanable.ratio", "0.50", "0.5"),
        ("background.threads", "+11", "11"),
        ("log.cleaner.io.max.bytes.per.second", "1e999", "Infinity"),
        ("log.cleanup.policy", "delete, compact,delete", "delete,compact"),
        ("compression.type", " zstd ", "zstd"),
    ],
)
def test_a_value_is_described_as_kafka_writes_it_however_it_was_given(name, given, shown):
    config = BrokerConfig({name: given})
    assert entry(config, name).value == shown
    config = BrokerConfig()
    config.check_change(ConfigScope.CLUSTER, {name: given})
    [change] = config.preview(ConfigScope.CLUSTER, {name: given})
    assert change.new == shown
    config.set_dynamic(ConfigScope.CLUSTER, {name: given})
    assert [each.value for each in (entry(config, name), *config.default_entries())] == [shown, shown]


# --- checking a change ---


@pytest.mark.parametrize("wanted", [4, 5, 8, 16])
def test_a_pool_may_go_from_half_to_double(wanted):
    BrokerConfig().check_change(ConfigScope.BROKER, {"num.io.threads": str(wanted)})


@pytest.mark.parametrize(("wanted", "reason"), [(3, "at least half"), (17, "at most double"), (0, "between 1 and 256")])
def test_a_pool_may_not_go_further(wanted, reason):
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig().check_change(ConfigScope.BROKER, {"num.io.threads": str(wanted)})


def test_a_caller_may_lift_the_rule_of_half_and_double():
    BrokerConfig().check_change(ConfigScope.BROKER, {"num.io.threads": "1"}, any_pool_size=True)
    with pytest.raises(ConfigError, match="between 1 and 256"):
        BrokerConfig().check_change(ConfigScope.BROKER, {"num.io.threads": "0"}, any_pool_size=True)


def test_half_of_an_odd_size_is_rounded_down():
    config = BrokerConfig()
    assert config.socket_server.num_network_threads == 3
    config.check_change(ConfigScope.CLUSTER, {"num.network.threads": "1"})


@pytest.mark.parametrize(
    "name", ["num.network.threads", "num.io.threads", "num.recovery.threads.per.data.dir", "log.cleaner.threads"]
)
def test_no_pool_has_more_than_256_threads_however_it_is_set(name):
    reason = f"{name}: '257' is refused: the value must be between 1 and 256"
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig({name: "257"})
    config = BrokerConfig({name: "128"})
    config.set_dynamic(ConfigScope.BROKER, {name: "256"})
    assert config.pool_limits(BROKER_KEYS[name]) == PoolLimits(current=256, minimum=128, maximum=256)
    for any_pool_size in (False, True):
        with pytest.raises(ConfigError, match=reason):
            config.check_change(ConfigScope.BROKER, {name: "257"}, any_pool_size=any_pool_size)


def test_a_persisted_value_above_the_largest_counts_as_that_with_a_warning(caplog):
    config = BrokerConfig({"num.network.threads": "4"})
    config.set_dynamic(ConfigScope.BROKER, {"num.network.threads": "12288"})
    assert config.socket_server.num_network_threads == 256
    assert (
        "num.network.threads: '12288' is refused: the value must be between 1 and 256; its largest value 256 counts"
        in (caplog.text)
    )
    config.set_dynamic(ConfigScope.BROKER, {"num.network.threads": "0"})
    assert config.socket_server.num_network_threads == 4, "what is too small is left out"


def test_each_cleaner_thread_has_room_for_the_least_table_of_keys():
    config = BrokerConfig({"log.cleaner.dedupe.buffer.size": str(2 << 20)})
    config.check_change(ConfigScope.BROKER, {"log.cleaner.threads": "2"})
    with pytest.raises(ConfigError, match="1048576 bytes for each"):
        config.check_change(ConfigScope.BROKER, {"log.cleaner.threads": "3"}, any_pool_size=True)


def test_the_limits_of_a_pool_can_be_asked_for():
    assert BrokerConfig().pool_limits(NUM_NETWORK_THREADS) == PoolLimits(current=3, minimum=1, maximum=6)


def test_a_refusal_names_the_key_at_fault():
    with pytest.raises(ConfigError) as refusal:
        BrokerConfig().check_change(ConfigScope.BROKER, {"queued.max.requests": "9", "num.io.threads": "99"})
    assert refusal.value.key == "num.io.threads"


def test_half_and_double_are_those_of_the_current_size_not_of_the_default():
    config = BrokerConfig()
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "16"})
    config.check_change(ConfigScope.BROKER, {"num.io.threads": "32"})
    with pytest.raises(ConfigError, match="half the current value 16"):
        config.check_change(ConfigScope.BROKER, {"num.io.threads": "7"})


def test_taking_a_value_away_follows_half_and_double_too():
    config = BrokerConfig({"num.io.threads": "64"})
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "16"})
    with pytest.raises(ConfigError, match="double the current value 16"):
        config.check_change(ConfigScope.BROKER, {"num.io.threads": None})


def test_a_cluster_default_behind_a_value_of_the_broker_changes_no_pool_and_passes():
    config = BrokerConfig()
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "8"})
    config.check_change(ConfigScope.CLUSTER, {"num.io.threads": "100"})


def test_the_queue_between_the_pools_may_change_by_any_factor():
    BrokerConfig().check_change(ConfigScope.BROKER, {"queued.max.requests": "1"})
    with pytest.raises(ConfigError, match="at least 1"):
        BrokerConfig().check_change(ConfigScope.BROKER, {"queued.max.requests": "0"})


@pytest.mark.parametrize(
    ("name", "reason"),
    [("log.dirs", "log.dirs cannot be updated dynamically"), ("no.such.key", "no.such.key is not a key")],
)
def test_read_only_and_unknown_keys_are_refused(name, reason):
    with pytest.raises(ConfigError, match=reason):
        BrokerConfig().check_value(ConfigScope.BROKER, name, "1")
    with pytest.raises(ConfigError):
        BrokerConfig().check_change(ConfigScope.BROKER, {name: "1"})


def test_all_read_only_keys_of_a_change_are_named_in_kafka_s_words():
    changes = {"num.io.threads": "9", "node.id": "2", "log.dirs": "/"}
    with pytest.raises(ConfigError, match=r"^Cannot update these configs dynamically: Set\(node\.id, log\.dirs\)$"):
        BrokerConfig().check_change(ConfigScope.BROKER, changes)


def test_values_that_contradict_each_other_are_refused():
    with pytest.raises(ConfigError, match="must not be above"):
        BrokerConfig().check_change(
            ConfigScope.CLUSTER,
            {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"},
        )


@pytest.mark.parametrize(
    ("settings", "refusal"),
    [
        (
            {"queued.max.request.bytes": "104857599"},
            "queued.max.request.bytes (104857599) must be at least socket.request.max.bytes (104857600), or no limit",
        ),
        (
            {"max.connections.per.ip": "0"},
            "max.connections.per.ip may be 0 only beside max.connections.per.ip.overrides",
        ),
        (
            {"connections.max.idle.ms": "100"},
            "connections.max.idle.ms (100) must be above connection.failed.authentication.delay.ms (100)",
        ),
        (
            {"connections.max.idle.ms": "7", "connection.failed.authentication.delay.ms": "7"},
            "connections.max.idle.ms (7) must be above connection.failed.authentication.delay.ms (7)",
        ),
    ],
)
def test_limits_of_connections_that_contradict_each_other_are_refused(settings, refusal):
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(settings)
    assert str(refused.value).startswith(f"{refusal}: ")


@pytest.mark.parametrize(
    "settings",
    [
        {"queued.max.request.bytes": "0"},
        {"queued.max.request.bytes": "5", "socket.request.max.bytes": "5"},
        {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "localhost:1"},
        {"connections.max.idle.ms": "101"},
        {"connections.max.idle.ms": "-1"},
        {"connections.max.idle.ms": "1", "connection.failed.authentication.delay.ms": "0"},
    ],
)
def test_limits_of_connections_at_their_borders_are_taken(settings):
    BrokerConfig(settings)


def test_the_default_of_a_fallback_is_a_synonym_of_a_key_that_is_set():
    config, key = BrokerConfig(), BROKER_KEYS["log.retention.ms"]
    assert config.synonyms(key) == ()
    config.set_dynamic(ConfigScope.BROKER, {"log.retention.ms": "700000000"})
    assert [(each.name, each.value, each.source) for each in config.synonyms(key)] == [
        ("log.retention.ms", "700000000", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ("log.retention.hours", "168", ConfigSource.DEFAULT_CONFIG),
    ]


def test_the_last_address_that_may_connect_is_not_taken_away():
    config = BrokerConfig({"max.connections.per.ip.overrides": "localhost:1"})
    config.set_dynamic(ConfigScope.BROKER, {"max.connections.per.ip": "0"})
    with pytest.raises(ConfigError, match="may be 0 only beside"):
        config.check_change(ConfigScope.BROKER, {"max.connections.per.ip.overrides": ""})


@pytest.mark.parametrize("scope", ConfigScope)
@pytest.mark.parametrize("name", ["max.connections", "max.connection.creation.rate"])
def test_a_limit_under_which_nobody_could_connect_to_raise_it_is_refused(name, scope):
    with pytest.raises(ConfigError, match="at least 1"):
        BrokerConfig().check_change(scope, {name: "0"})
    with pytest.raises(ConfigError, match="at least 1"):
        BrokerConfig({name: "0"})


@pytest.mark.parametrize(
    ("key", "text", "other", "default"),
    [
        ("session.timeout.ms", "1", "greater than or equal to group.consumer.min.session.timeout.ms", 45_000),
        ("heartbeat.interval.ms", "99999", "less than or equal to group.consumer.max.heartbeat.interval.ms", 15_000),
    ],
)
def test_a_group_key_that_is_refused_is_named_as_it_was_written_and_with_where(key, text, other, default):
    written = f"group.consumer.{key}"
    with pytest.raises(ConfigError) as refused:
        BrokerConfig(settings_of(written, text, "server.properties:3"))
    bound = other.rpartition(" ")[2]
    assert str(refused.value) == (
        f"{written} must be {other}: {written}={text} (server.properties:3), {bound}={default} (the default)"
    )


def test_of_a_refused_change_each_value_is_named_with_its_level():
    config = BrokerConfig(settings_of("log.cleaner.dedupe.buffer.size", "2097152", "server.properties:3"))
    config.set_dynamic(ConfigScope.CLUSTER, {"log.cleaner.threads": "2"})
    with pytest.raises(ConfigError) as refused:
        config.check_change(ConfigScope.BROKER, {"log.cleaner.threads": "3"})
    assert str(refused.value).endswith(
        ": log.cleaner.dedupe.buffer.size=2097152 (server.properties:3),"
        " log.cleaner.threads=3 (the dynamic value of this broker)"
    )


def test_checking_changes_nothing():
    config = BrokerConfig()
    config.check_change(ConfigScope.BROKER, {"num.io.threads": "16"})
    assert config.socket_server.num_io_threads == 8


# --- applying a change ---


def test_replacing_a_layer_returns_all_effective_values_that_changed():
    config = BrokerConfig()
    assert config.set_dynamic(ConfigScope.BROKER, {"queued.max.requests": "10", "num.io.threads": "9"}) == (
        ValueChange("num.io.threads", "8", "9"),
        ValueChange("queued.max.requests", "500", "10"),
    )


# --- trials ---


def test_a_value_on_trial_is_in_effect_in_no_layer_and_ends_without_a_trace():
    config = BrokerConfig({"num.io.threads": "4"})
    config.set_dynamic(ConfigScope.BROKER, {"queued.max.requests": "9"})
    assert config.try_values({"num.io.threads": "16"}) == (ValueChange("num.io.threads", "4", "16"),)
    assert (config.socket_server.num_io_threads, config.dynamic(ConfigScope.BROKER)) == (
        16,
        {"queued.max.requests": "9"},
    )
    [first, *_] = config.synonyms(BROKER_KEYS["num.io.threads"])
    assert (first.value, first.source) == ("16", ConfigSource.DYNAMIC_BROKER_CONFIG)
    assert config.end_trial() == (ValueChange("num.io.threads", "16", "4"),)
    assert (config.socket_server.num_io_threads, config.tried) == (4, {})


def test_taking_a_value_away_can_be_tried_too():
    config = BrokerConfig({"num.io.threads": "4"})
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "6"})
    config.try_values({"num.io.threads": None})
    assert config.socket_server.num_io_threads == 4
    config.end_trial()
    assert config.socket_server.num_io_threads == 6


def test_a_value_for_good_ends_the_trial_of_its_key_and_of_no_other():
    config = BrokerConfig()
    config.try_values({"num.io.threads": "16", "queued.max.requests": "9"})
    config.check_change(ConfigScope.BROKER, {"num.io.threads": "10"})
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "10"})
    assert (config.socket_server.num_io_threads, config.socket_server.queued_max_requests) == (10, 9)
    assert config.tried == {"queued.max.requests": "9"}


def test_keeping_what_is_tried_changes_nothing_in_effect():
    config = BrokerConfig()
    config.try_values({"num.io.threads": "16"})
    config.check_change(ConfigScope.BROKER, {"num.io.threads": "16"})
    assert config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "16"}) == ()
    assert config.end_trial() == ()
    assert config.socket_server.num_io_threads == 16


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("log.retention.ms", "1000", "cannot be tried: what it does to the logs of topics stays"),
        ("node.id", "2", "Cannot update these configs dynamically"),
        ("no.such.key", "2", "is not a key of this broker"),
        ("num.io.threads", "0", "num.io.threads"),
    ],
)
def test_what_cannot_be_undone_or_set_cannot_be_tried(key, value, reason):
    config = BrokerConfig()
    with pytest.raises(ConfigError, match=reason):
        config.try_values({"queued.max.requests": "9", key: value})
    assert (config.tried, config.socket_server.queued_max_requests) == ({}, 500)


def test_a_persisted_value_that_is_not_valid_any_more_is_left_out_with_a_warning(caplog):
    config = BrokerConfig()
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "-3", "gone.key": "1", "message.max.bytes": "77"})
    assert config.socket_server.num_io_threads == 8
    assert config.log.max_message_bytes == 77
    assert "gone.key is not a key" in caplog.text


# --- describing ---


def test_an_entry_names_its_source_and_the_whole_chain_behind_it():
    config = BrokerConfig({"num.io.threads": "4"})
    config.set_dynamic(ConfigScope.CLUSTER, {"num.io.threads": "5"})
    config.set_dynamic(ConfigScope.BROKER, {"num.io.threads": "6"})
    described = entry(config, "num.io.threads")
    assert (described.value, described.source, described.read_only) == ("6", ConfigSource.DYNAMIC_BROKER_CONFIG, False)
    assert described.type is ConfigType.INT
    assert described.synonyms == (
        ConfigSynonym("num.io.threads", "6", ConfigSource.DYNAMIC_BROKER_CONFIG),
        ConfigSynonym("num.io.threads", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG),
        ConfigSynonym("num.io.threads", "4", ConfigSource.STATIC_BROKER_CONFIG),
        ConfigSynonym("num.io.threads", "8", ConfigSource.DEFAULT_CONFIG),
    )


def test_a_key_with_fallbacks_lists_them_and_has_no_value_of_its_own():
    described = entry(BrokerConfig({"log.retention.minutes": "5"}), "log.retention.ms")
    assert described.value is None
    assert described.synonyms == (ConfigSynonym("log.retention.minutes", "5", ConfigSource.STATIC_BROKER_CONFIG),)
    assert entry(BrokerConfig(), "log.retention.ms").synonyms == (), "as in Kafka, a fallback's default is no synonym"


def test_a_read_only_key_says_so():
    assert entry(BrokerConfig(), "log.dirs").read_only


def test_the_unnamed_broker_has_only_what_is_set_for_the_cluster():
    config = BrokerConfig({"num.io.threads": "4"})
    config.set_dynamic(ConfigScope.CLUSTER, {"num.io.threads": "5"})
    (described,) = config.default_entries()
    assert (described.name, described.value) == ("num.io.threads", "5")
    assert described.source is ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG


def test_a_preview_says_what_a_change_would_do_at_its_level_and_in_effect():
    config = BrokerConfig({"num.io.threads": "4"})
    config.set_dynamic(ConfigScope.CLUSTER, {"num.io.threads": "5"})
    [change] = config.preview(ConfigScope.CLUSTER, {"num.io.threads": None})
    assert (change.old, change.new, change.effective_old, change.effective_new) == ("5", None, "5", "4")
    config.try_values({"num.io.threads": "6"})
    [change] = config.preview(ConfigScope.CLUSTER, {"num.io.threads": None})
    assert (change.effective_old, change.effective_new, change.shadowed_by) == ("6", "6", ConfigLevel.BROKER)
    [change] = config.preview(ConfigScope.BROKER, {"num.io.threads": "7"})
    assert (change.old, change.effective_new, change.shadowed_by) == (None, "7", None)
    assert config.socket_server.num_io_threads == 6


def test_a_value_on_trial_says_so_beside_the_other_levels():
    config = BrokerConfig({"num.io.threads": "4"})
    config.try_values({"num.io.threads": "6"})
    levels = config.level_values(NUM_IO_THREADS)
    assert [(each.level.value, each.value, each.origin, each.wins) for each in levels] == [
        ("broker", "6", "on trial", True),
        ("command-line", "4", "", False),
        ("built-in", "8", "", False),
    ]


def test_a_change_from_a_word_that_stands_for_no_value_names_the_word():
    [change] = BrokerConfig().set_dynamic(ConfigScope.BROKER, {"compression.type": "zstd"})
    assert (change.old, change.new) == ("producer", "zstd")


def test_the_log_has_no_value_of_a_secret_that_changes(caplog):
    caplog.set_level(logging.INFO)
    config = BrokerConfig({"alerts.webhook.url": "https://alerts.example/before"})
    config.set_dynamic(ConfigScope.CLUSTER, {"alerts.webhook.url": "https://alerts.example/after"})
    assert "alerts.webhook.url changed (hidden)" in caplog.text
    assert "alerts.example" not in caplog.text
