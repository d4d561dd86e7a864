"""A topic that rows are to go to and that is not there: named, created, or waited for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import pyarrow as pa
import pytest
from confluent_kafka.admin import AdminClient

from tests.client.producer.scripted_logs import ScriptedLogs, TurnedTime, settings_for
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka
from tests.waits import scaled
from trio_broker.client.address import parse_addresses
from trio_broker.client.errors import WriteFailed
from trio_broker.client.producer.batch_producer import BatchProducer
from trio_broker.client.producer.settings import ProducerSettings
from trio_broker.spark.producer.record_writer import RecordWriter
from trio_broker.spark.producer.target_topic import TargetError, partition_count, require_topic
from trio_broker.testing import BrokerThread, broker_in_thread

SECONDS = 30


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """A broker that would create whatever topic it is asked about, as Kafka's do by default."""
    with broker_in_thread(num_partitions=3) as running:
        for name in ("orders", "orders2", "customers"):
            running.create_topic(name, 1)
        yield running


def settings(broker: BrokerThread, **changes: Any) -> ProducerSettings:
    given = ProducerSettings(parse_addresses(broker.bootstrap_servers), allow_auto_topic_creation=False)
    return attrs.evolve(given, **changes)


def topics(broker: BrokerThread) -> dict[str, int]:
    """The topics that there are, with the numbers of their partitions."""
    found = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=scaled(SECONDS)).topics
    return {name: len(topic.partitions) for name, topic in found.items()}


def test_a_misspelt_topic_is_an_error_that_has_the_names_like_it(broker: BrokerThread):
    with pytest.raises(TargetError) as raised:
        require_topic(settings(broker), "ordres", create=False)

    assert str(raised.value) == (
        "topic 'ordres' does not exist; did you mean 'orders' or 'orders2'?"
        " The option createTopics=true lets the sink create it."
    )
    assert "ordres" not in topics(broker)


def test_a_topic_like_no_other_is_an_error_without_a_guess(broker: BrokerThread):
    with pytest.raises(TargetError, match=r"^topic 'zzz' does not exist\. The option createTopics=true"):
        require_topic(settings(broker), "zzz", create=False)


def test_a_topic_is_created_as_the_brokers_defaults_have_it(broker: BrokerThread):
    for _ in range(2):
        require_topic(settings(broker), "wanted", create=True)

    assert topics(broker)["wanted"] == 3


def test_a_name_that_no_topic_can_have_is_refused(broker: BrokerThread):
    with pytest.raises(WriteFailed, match="INVALID_TOPIC_EXCEPTION"):
        require_topic(settings(broker), "no topic", create=True)


def test_a_topic_of_a_row_is_named_before_any_row_is_written(broker: BrokerThread):
    rows = pa.record_batch({"topic": ["customers", "custmers"], "value": ["a", "b"]})
    with RecordWriter(settings(broker)) as writer, pytest.raises(TargetError, match="did you mean 'customers'"):
        writer.write(rows)

    assert writer.written.record_count == 0
    assert "custmers" not in topics(broker)


def test_topics_of_rows_are_created_where_that_is_wanted(broker: BrokerThread):
    rows = pa.record_batch({"topic": ["by-row-1", "by-row-2", "by-row-1"], "value": ["a", "b", "c"]})
    with RecordWriter(settings(broker), create_topics=True) as writer:
        writer.write(rows)

    assert writer.written.record_count == 3
    assert {name: count for name, count in topics(broker).items() if name.startswith("by-row")} == {
        "by-row-1": 3,
        "by-row-2": 3,
    }


@pytest.mark.parametrize(("appears_after_seconds", "is_found"), [(0.5, True), (5.0, False)])
def test_a_topic_that_was_created_a_moment_ago_is_waited_for(appears_after_seconds: float, is_found: bool):
    with ScriptedKafka() as server:
        cluster, time = Cluster([server], {"other": [1]}), TurnedTime()
        ScriptedLogs(cluster)
        began = time.seconds

        def sleep(seconds: float) -> None:
            time.seconds += seconds
            if time.seconds - began > appears_after_seconds:
                cluster.topics["late"] = [1, 1]

        timer = attrs.evolve(time.timer, sleep=sleep)
        with BatchProducer(settings_for(server, allow_auto_topic_creation=False), timer) as producer:
            if is_found:
                assert partition_count(producer, "late", create=False, timer=timer) == 2
            else:
                with pytest.raises(TargetError, match="'late' does not exist"):
                    partition_count(producer, "late", create=False, timer=timer)
