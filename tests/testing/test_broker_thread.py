"""A real broker in a thread, as a test of anybody would use it."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from pathlib import Path

import attrs
import httpx
import pytest
from confluent_kafka import Consumer
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from kafka_wire.errors import KafkaError
from tests.waits import scaled, within
from trio_broker.broker import StartupError
from trio_broker.config.errors import ConfigError
from trio_broker.testing import BrokerThread, broker_in_thread
from trio_broker.testing.loop_thread import BrokerDoesNotRun

WEEK_SECONDS = 7 * 24 * 3600
HOUR_SECONDS = 3600


def produce(broker: BrokerThread, topic: str, *values: bytes) -> None:
    producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
    try:
        for value in values:
            producer.send(topic, value, partition=0)
        producer.flush()
    finally:
        producer.close()


def consume(broker: BrokerThread, topic: str, count: int) -> list[bytes]:
    """The first ``count`` values from the beginning of partition 0."""
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest", group_id=None)
    consumer.assign([TopicPartition(topic, 0)])
    try:
        return [next(consumer).value for _ in range(count)]
    finally:
        consumer.close()


def beginning_offset(broker: BrokerThread, topic: str) -> int:
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=broker.bootstrap_servers, group_id=None)
    try:
        offset: int = consumer.beginning_offsets([partition])[partition]
        return offset
    finally:
        consumer.close()


def test_what_a_client_sends_comes_back():
    with broker_in_thread() as broker:
        produce(broker, "orders", b"one", b"two")
        assert consume(broker, "orders", 2) == [b"one", b"two"]


def test_brokers_side_by_side_share_nothing():
    with broker_in_thread() as first, broker_in_thread() as second:
        assert first.bootstrap_servers != second.bootstrap_servers
        first.create_topic("orders")
        admin = KafkaAdminClient(bootstrap_servers=second.bootstrap_servers)
        assert admin.list_topics() == []
        admin.close()


def test_settings_are_kafkas_keys_with_underscores():
    with broker_in_thread(num_partitions=3, auto_create_topics_enable=False) as broker:
        config = broker.broker.config
        assert (config.request.num_partitions, config.request.auto_create_topics_enable) == (3, False)


def test_a_misspelt_setting_is_refused():
    with pytest.raises(ConfigError, match=r"num\.partition is not a key"):
        broker_in_thread(num_partition=3)


def test_a_taken_port_is_an_error_of_the_caller():
    with broker_in_thread() as first, pytest.raises(StartupError, match="cannot listen on"):
        broker_in_thread(listeners=f"PLAINTEXT://{first.bootstrap_servers}")


def broker_threads() -> list[threading.Thread]:
    """The event loops of brokers; other tests of this run may share one. Trio's idle worker threads are nobody's."""
    return [thread for thread in threading.enumerate() if thread.name == "trio-broker"]


def test_a_start_that_failed_leaves_no_thread():
    before = broker_threads()
    with broker_in_thread() as first:
        refused = BrokerThread(first.data_directory)
        with pytest.raises(StartupError, match="in use by another broker"):
            refused.start()
        assert not refused.is_running
        refused.stop()
    assert broker_threads() == before


def test_the_admin_page_is_off_until_asked_for():
    with broker_in_thread() as broker:
        assert broker.admin_url is None


def test_the_admin_page_can_be_asked_for():
    with broker_in_thread(admin=True) as broker:
        assert httpx.get(f"{broker.admin_url}readyz").status_code == 200


def test_a_restart_keeps_port_and_data():
    with broker_in_thread() as broker:
        address = broker.bootstrap_servers
        produce(broker, "orders", b"kept")
        broker.restart()
        assert broker.bootstrap_servers == address
        assert consume(broker, "orders", 1) == [b"kept"]


def test_what_was_acknowledged_survives_a_kill():
    with broker_in_thread() as broker:
        produce(broker, "orders", b"kept")
        broker.kill()
        assert not (broker.data_directory / ".kafka_cleanshutdown").exists()
        broker.start()
        assert consume(broker, "orders", 1) == [b"kept"]


def test_data_in_a_given_directory_outlives_the_broker(tmp_path):
    with broker_in_thread(tmp_path / "data") as broker:
        topic_id = broker.create_topic("orders")
    with broker_in_thread(tmp_path / "data") as broker, pytest.raises(KafkaError):
        broker.create_topic("orders")
    assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()
    assert topic_id


def test_temporary_data_goes_with_the_block():
    with broker_in_thread() as broker:
        assert broker.data_directory.is_dir()
    assert not broker.data_directory.exists()


def test_temporary_data_goes_with_a_forgotten_broker():
    broker = BrokerThread().start()
    directory = broker.data_directory
    broker.stop()
    assert directory.is_dir()
    del broker
    gc.collect()
    assert not directory.exists()


def test_retention_follows_the_advanced_clock():
    with broker_in_thread() as broker:
        produce(broker, "orders", b"old")
        broker.advance_clock(WEEK_SECONDS + HOUR_SECONDS)
        assert beginning_offset(broker, "orders") == 1


def test_an_hour_is_too_short_for_retention():
    with broker_in_thread() as broker:
        produce(broker, "orders", b"young")
        broker.advance_clock(HOUR_SECONDS)
        assert beginning_offset(broker, "orders") == 0


def test_files_of_a_deleted_topic_go_when_the_clock_passes_their_delay():
    with broker_in_thread() as broker:
        broker.create_topic("orders")
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        admin.delete_topics(["orders"])
        admin.close()
        assert any(broker.data_directory.glob("orders-0.*-delete"))
        broker.advance_clock(61)
        assert not any(broker.data_directory.glob("orders-0.*-delete"))


def test_an_advanced_clock_dates_what_the_broker_dates():
    with broker_in_thread(log_message_timestamp_type="LogAppendTime") as broker:
        before_ms = broker.clock.now_ms()
        broker.advance_clock(WEEK_SECONDS)
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        metadata = within(producer.send("orders", b"later").get, 10)
        producer.close()
        assert metadata.timestamp >= before_ms + WEEK_SECONDS * 1000


def test_clients_stay_connected_while_the_clock_is_advanced():
    with broker_in_thread() as broker:
        producer = KafkaProducer(bootstrap_servers=broker.bootstrap_servers)
        within(producer.send("orders", b"before").get, 10)
        accepted = broker.broker.server.statistics().connections_accepted
        broker.advance_clock(WEEK_SECONDS)
        within(producer.send("orders", b"after").get, 10)
        producer.close()
        assert broker.broker.server.statistics().connections_accepted == accepted


def test_a_created_topic_has_the_partitions_and_settings_asked_for():
    with broker_in_thread() as broker:
        broker.create_topic("orders", 3, cleanup_policy="compact")
        topic = broker.broker.services.metadata_cache.image.topics["orders"]
        assert (len(topic.partitions), topic.configs) == (3, {"cleanup.policy": "compact"})


def test_a_refused_topic_says_why():
    with broker_in_thread() as broker, pytest.raises(KafkaError, match="characters other than"):
        broker.create_topic("no/good")


def test_asking_a_stopped_broker_is_an_error():
    broker = broker_in_thread()
    broker.stop()
    broker.stop()
    with pytest.raises(BrokerDoesNotRun):
        broker.advance_clock(1)


def test_what_a_call_raises_is_raised_here():
    async def fail():
        raise LookupError("there")

    with broker_in_thread() as broker, pytest.raises(LookupError, match="there"):
        broker.call(fail)


def test_a_broker_that_fails_later_says_so_when_it_is_stopped():
    broker = broker_in_thread()

    @attrs.define
    class Trouble(Exception):
        pass

    async def fail():
        nursery = broker.broker.server._nursery
        assert nursery is not None
        nursery.start_soon(raise_trouble)

    async def raise_trouble():
        raise Trouble

    broker.call(fail)
    with pytest.raises(Trouble):
        broker.stop()


async def test_it_serves_a_test_that_runs_trio():
    with broker_in_thread() as broker:
        broker.create_topic("orders")
        broker.advance_clock(1)
        broker.restart()


def test_it_serves_a_test_that_runs_asyncio():
    async def use() -> None:
        with broker_in_thread() as broker:
            broker.create_topic("orders")
            broker.advance_clock(1)

    asyncio.run(use())


@pytest.mark.parametrize("kept", [True, False])
def test_a_normal_life_logs_nothing_to_look_at(caplog: pytest.LogCaptureFixture, tmp_path: Path, kept: bool):
    directory = tmp_path / "data" if kept else None
    with caplog.at_level(logging.INFO, logger="trio_broker"), broker_in_thread(directory) as broker:
        produce(broker, "orders", b"one")
        broker.restart()
        # kafka-python would drop a socket that it was still connecting when the broker went, without closing it.
        consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": "readers", "log_level": 0})
        assert "orders" in consumer.list_topics(timeout=scaled(10)).topics
        broker.advance_clock(WEEK_SECONDS + HOUR_SECONDS)
    consumer.close()
    ours = [record for record in caplog.records if record.name.startswith("trio_broker")]
    assert [record.getMessage() for record in ours if record.levelno > logging.INFO] == []
