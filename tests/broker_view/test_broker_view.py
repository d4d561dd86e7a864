"""A running broker, as the admin app sees and changes it."""

from __future__ import annotations

import errno
import os
from time import perf_counter_ns

import httpx
import pytest
import trio

from broker_admin.views.cluster.config import SettingChange
from broker_admin.views.node.events import EventsForgotten
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from tests.running_broker import BROKER_RESOURCE, connected, crashing, running, view_of
from trio_broker.broker_view.cluster.config import settings_in
from trio_broker.broker_view.live import LiveBrokerView
from trio_broker.broker_view.node.events import KEPT_EVENTS
from trio_broker.config import keys
from trio_broker.config.entries import ConfigSource
from trio_broker.config.validators import MAX_POOL_SIZE
from trio_broker.metrics.history import HistorySample
from trio_broker.storage.log import Log

STATIC = {"num_io_threads": "4", "num_network_threads": "3"}


@pytest.fixture
async def broker(tmp_path):
    async with running(tmp_path, **STATIC) as broker:
        yield broker


@pytest.fixture
def view(broker) -> LiveBrokerView:
    return view_of(broker)


@pytest.fixture
async def client(broker):
    async with connected(broker) as client:
        yield client


def entry(view, name):
    return next(entry for entry in view.cluster.config.entries() if entry.name == name)


def setting_changes(view):
    return list(settings_in(view.cluster.changes.list()))


async def described(client, broker, name):
    """Value and source that a client receives for a setting of the broker."""
    resource = DescribeConfigsResource(
        resource_type=BROKER_RESOURCE, resource_name=str(broker.services.node.node_id), configuration_keys=[name]
    )
    response = await client.ask(DescribeConfigsRequest(resources=[resource]), 4)
    [config] = response.results[0].configs
    return config.value, config.config_source


# --- what it tells ---


async def test_the_node_is_shown_with_cluster_durability_and_the_ports_that_were_bound(broker, view):
    node = view.node.identity.description()
    [listener] = node.listeners
    assert (node.node_id, node.cluster_id) == (broker.services.node.node_id, broker.services.node.cluster_id)
    assert (listener.name, listener.host, listener.port) == ("PLAINTEXT", "127.0.0.1", broker.bound_endpoints[0].port)
    assert node.durability == "page-cache"
    assert node.uptime_seconds >= 0


async def test_it_is_ready_until_it_stops(broker, view):
    assert view.node.identity.readiness().ready
    broker.stop()
    assert (view.node.identity.readiness().ready, view.node.identity.readiness().reason) == (
        False,
        "the broker is stopping",
    )


async def test_it_is_not_ready_once_its_only_data_directory_failed(client, view, monkeypatch):
    await client.create_topic("orders")
    monkeypatch.setattr(Log, "append_prepared", fail_with_io_error)
    assert await client.produce("orders", b"one") == ErrorCode.KAFKA_STORAGE_ERROR
    readiness = view.node.identity.readiness()
    assert not readiness.ready
    assert readiness.reason.startswith("every data directory failed: ")
    assert "Input/output error" in readiness.reason


async def test_it_stays_ready_while_one_of_two_data_directories_works(tmp_path):
    directories = f"{tmp_path / 'a'},{tmp_path / 'b'}"
    async with running(tmp_path, **STATIC, log_dirs=directories) as broker:
        log_manager, view = broker.services.replicas.log_manager, view_of(broker)
        first, second = log_manager.directories
        log_manager.take_offline(second.path, OSError(errno.EIO, "Input/output error"))
        assert view.node.identity.readiness().ready
        log_manager.take_offline(first.path, OSError(errno.EIO, "Input/output error"))
        assert not view.node.identity.readiness().ready


async def test_it_is_not_ready_once_the_metadata_log_failed(client, view, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail_with_io_error)
        patched.setattr(os, "fsync", fail_with_io_error)
        with pytest.raises(OSError, match="Input/output error"):
            await view.cluster.config.change({"num.io.threads": "8"}, changed_by="a test")
    readiness = view.node.identity.readiness()
    assert not readiness.ready
    assert readiness.reason.startswith("every data directory failed: ")


def fail_with_io_error(*_args, **_options):
    raise OSError(errno.EIO, os.strerror(errno.EIO))


async def test_one_key_is_described_as_in_the_list_of_all_and_unknown_ones_not_at_all(view):
    assert view.cluster.config.entry("num.partitions") == entry(view, "num.partitions")
    assert view.cluster.config.entry("no.such.key") is None


async def test_every_key_is_shown_with_its_source(view):
    assert {entry.name for entry in view.cluster.config.entries()} == {
        key.name for key in keys.BROKER_KEYS.values() if not key.internal and not key.without_effect
    }
    assert entry(view, "num.io.threads").source is ConfigSource.STATIC_BROKER_CONFIG
    assert entry(view, "num.partitions").source is ConfigSource.DEFAULT_CONFIG


async def test_a_pool_is_shown_with_the_sizes_it_may_be_given_now(view):
    allowed = entry(view, "num.io.threads").allowed_range
    assert (allowed.minimum, allowed.maximum) == (1, MAX_POOL_SIZE)
    assert entry(view, "queued.max.requests").allowed_range is None


async def test_topics_are_shown_with_the_offsets_of_their_partitions(client, view):
    await client.create_topic("orders", 2)
    await client.produce("orders", b"one", b"two")
    first, second = await view.cluster.topics.partitions("orders")
    assert (first.log_start_offset, first.high_watermark, first.log_end_offset) == (0, 2, 2)
    assert (second.log_end_offset, second.size_bytes) == (0, 0)
    assert first.size_bytes > 0
    # It is in the log's file, which is read where it is wanted only.
    assert first.oldest_record_at_ms is None
    first, _ = await view.cluster.topics.partitions("orders", oldest_records=True)
    assert first.oldest_record_at_ms == 1_700_000_000_000


async def test_the_threads_shown_are_those_that_run(broker, view):
    threads = view.node.readings.threads()
    assert (threads.network.size, len(threads.network.workers)) == (3, 3)
    assert (threads.io.size, len(threads.io.workers)) == (4, 4)
    assert [worker.name for worker in threads.io.workers] == ["0", "1", "2", "3"]
    assert threads.queue.capacity == 500


async def test_metrics_count_what_clients_did(client, view):
    await client.create_topic("orders")
    await client.produce("orders", b"one", b"two")
    text = (await view.node.metrics.prometheus_renderer())().decode()
    for series in (
        "trio_broker_requests_total 2.0",
        'trio_broker_api_requests_total{api="produce"} 1.0',
        "trio_broker_records_in_total 2.0",
        "trio_broker_topics 1.0",
        "trio_broker_partitions 1.0",
    ):
        assert series in text


async def test_metrics_are_rendered_from_a_snapshot_that_another_thread_may_use(broker, client, view):
    await client.create_topic("orders")
    text = (await view.node.metrics.prometheus_renderer())().decode()
    assert 'durability="page-cache"' in text
    assert broker.services.node.cluster_id in text


async def test_partitions_are_measured_one_by_one_only_where_that_is_asked_for(client, view):
    await client.create_topic("orders", 2)
    await client.produce("orders", b"one", b"two")
    series = 'trio_broker_partition_log_end_offset{partition="0",topic="orders"} 2.0'
    assert series not in (await view.node.metrics.prometheus_renderer())().decode()
    await view.cluster.config.change({"metrics.per.partition": "true"}, changed_by="a test")
    assert series in (await view.node.metrics.prometheus_renderer())().decode()


# --- what it changes ---


async def test_a_change_takes_effect_on_the_pools_before_it_is_answered(broker, view):
    result = await view.cluster.config.change({"num.io.threads": "8", "num.network.threads": "5"}, changed_by="a test")
    assert result.refusals == ()
    statistics = broker.server.statistics()
    assert (len(statistics.handlers.slots), len(statistics.processors)) == (8, 5)


async def test_a_change_is_answered_with_its_lines_of_the_journal(broker, view):
    result = await view.cluster.config.change({"num.io.threads": "8"}, changed_by="a test")
    [change] = result.changes
    assert (change.key, change.old, change.new, change.changed_by) == ("num.io.threads", "4", "8", "a test")
    assert setting_changes(view) == [change]


async def test_the_lines_of_the_journal_are_numbered_without_gaps(client, broker, view):
    await view.cluster.config.change({"num.io.threads": "8", "queued.max.requests": "9"}, changed_by="a test")
    await client.alter_broker_config(str(broker.services.node.node_id), num_io_threads="6")
    await view.cluster.config.change({"num.io.threads": None}, changed_by="a test")
    assert [change.sequence for change in setting_changes(view)] == [1, 1, 2, 3]


async def test_each_of_two_changes_at_once_is_answered_with_its_own_lines(view):
    answers = {}

    async def change(value):
        answers[value] = await view.cluster.config.change({"queued.max.requests": value}, changed_by="a test")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(change, "7")
        nursery.start_soon(change, "9")
    assert {value: [line.new for line in answer.changes] for value, answer in answers.items()} == {
        "7": ["7"],
        "9": ["9"],
    }


async def test_a_reset_goes_back_to_the_layer_below(view):
    await view.cluster.config.change({"num.io.threads": "8"}, changed_by="a test")
    result = await view.cluster.config.change({"num.io.threads": None}, changed_by="a test")
    assert [(change.old, change.new) for change in result.changes] == [("8", "4")]
    assert entry(view, "num.io.threads").source is ConfigSource.STATIC_BROKER_CONFIG


async def test_a_pool_goes_to_any_size_and_back_in_one_change_with_one_line_in_the_journal(broker, view):
    for value, size in (("1", 1), (None, 3), ("16", 16), (None, 3)):
        result = await view.cluster.config.change({"num.network.threads": value}, changed_by="a test")
        assert [change.new for change in result.changes] == [str(size)]
        assert len(broker.server.statistics().processors) >= size
        assert entry(view, "num.network.threads").value == str(size)
    assert [(change.old, change.new) for change in setting_changes(view)] == [
        ("3", "1"),
        ("1", "3"),
        ("3", "16"),
        ("16", "3"),
    ]


async def test_what_changes_nothing_is_accepted_without_a_line_in_the_journal(view):
    result = await view.cluster.config.change({"num.io.threads": "4"}, changed_by="a test")
    assert (result.changes, result.refusals) == ((), ())
    assert setting_changes(view) == []


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("num.io.threads", "257", "between 1 and 256"),
        ("num.io.threads", "0", "between 1 and 256"),
        ("num.io.threads", "many", "many"),
        ("log.dirs", "/elsewhere", "read at start only"),
        ("no.such.key", "1", "not a key"),
    ],
)
async def test_a_change_with_one_bad_key_is_refused_as_a_whole(broker, view, key, value, reason):
    result = await view.cluster.config.change({"queued.max.requests": "9", key: value}, changed_by="a test")
    [refusal] = result.refusals
    assert refusal.key == key
    assert reason in refusal.reason
    assert result.changes == ()
    assert broker.server.statistics().channel.capacity == 500


async def test_every_bad_key_has_its_own_reason_and_keys_that_contradict_each_other_have_one(view):
    result = await view.cluster.config.change({"num.io.threads": "no", "no.such.key": None}, changed_by="a test")
    assert [refusal.key for refusal in result.refusals] == ["num.io.threads", "no.such.key"]
    lags = {"log.cleaner.min.compaction.lag.ms": "10", "log.cleaner.max.compaction.lag.ms": "5"}
    result = await view.cluster.config.change(lags, changed_by="a test")
    [refusal] = result.refusals
    assert "must not be above" in refusal.reason


async def test_a_key_that_is_read_at_start_is_refused_in_words_that_say_so(view):
    result = await view.cluster.config.change({"node.id": "2"}, changed_by="a test")
    [refusal] = result.refusals
    assert (refusal.key, refusal.reason) == (
        "node.id",
        "node.id cannot be updated dynamically: it is read at start only",
    )


async def test_a_change_survives_a_restart(tmp_path):
    async with running(tmp_path, **STATIC) as broker:
        await view_of(broker).cluster.config.change({"num.io.threads": "8"}, changed_by="a test")
    async with running(tmp_path, **STATIC) as broker:
        assert len(broker.server.statistics().handlers.slots) == 8
        assert entry(view_of(broker), "num.io.threads").source is ConfigSource.DYNAMIC_BROKER_CONFIG


async def test_a_change_that_was_answered_survives_a_crash(tmp_path):
    async with crashing(tmp_path, **STATIC) as broker:
        await view_of(broker).cluster.config.change({"num.io.threads": "8"}, changed_by="a test")
    async with running(tmp_path, **STATIC) as broker:
        assert len(broker.server.statistics().handlers.slots) == 8


# --- both doors lead to the same room ---


async def test_a_kafka_client_sees_what_was_changed_over_http(broker, client, view):
    await view.cluster.config.change({"num.io.threads": "8"}, changed_by="a test")
    assert await described(client, broker, "num.io.threads") == ("8", 2)


async def test_what_a_kafka_client_changed_is_journalled_with_its_name(broker, client, view):
    assert await client.alter_broker_config(str(broker.services.node.node_id), num_io_threads="8") == ErrorCode.NONE
    changed = entry(view, "num.io.threads")
    assert (changed.value, changed.source) == ("8", ConfigSource.DYNAMIC_BROKER_CONFIG)
    [change] = setting_changes(view)
    assert (change.key, change.old, change.new) == ("num.io.threads", "4", "8")
    assert change.changed_by == "kafka client test from 127.0.0.1"


async def test_what_a_kafka_client_only_tried_is_not_in_the_journal(broker, client, view):
    assert await client.alter_broker_config(str(broker.services.node.node_id), num_io_threads="9") != ErrorCode.NONE
    assert setting_changes(view) == []


# --- events ---


async def test_a_reader_of_events_gets_changes_and_samples_until_it_has_fallen_behind(broker, view):
    events = view.node.events
    before = events.newest
    await view.cluster.config.change({"num.io.threads": "8"}, changed_by="a test")
    broker.server.sample(perf_counter_ns())
    assert [type(event) for event in events.after(before)] == [SettingChange, HistorySample]
    assert (events.after(events.newest), len(events.after(before + 1))) == ([], 1)
    for _ in range(KEPT_EVENTS - 1):
        broker.server.sample(perf_counter_ns())
    for forgotten in (before, events.newest + 1):
        with pytest.raises(EventsForgotten):
            events.after(forgotten)


async def test_the_history_keeps_every_sample(broker, view):
    for _ in range(3):
        broker.server.sample(perf_counter_ns())
    assert len(view.node.readings.history()) == 3


# --- over HTTP ---


def test_a_change_over_http_takes_effect_and_is_journalled(kafka_broker_factory):
    broker = kafka_broker_factory(admin=True, num_io_threads=4)
    headers = {"x-requested-with": "a test"}
    url = broker.admin_url
    answer = httpx.patch(f"{url}api/v1/config", json={"num.io.threads": 8}, headers=headers)
    assert answer.status_code == 200, answer.text
    assert len(broker.broker.server.statistics().handlers.slots) == 8
    assert httpx.get(f"{url}api/v1/config").json()["configs"]["num.io.threads"]["value"] == "8"
    assert "num.io.threads" in httpx.get(f"{url}api/v1/changes").text
