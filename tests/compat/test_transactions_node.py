"""Transactions of kafkajs and @platformatic/kafka, of the first protocol, with a zombie at the end.

Of six transactions the third and the sixth are aborted; each writes a value to both partitions and commits an offset.
"""

from __future__ import annotations

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic

from tests.compat.test_node_clients import run_script
from tests.compat.test_transactions_python import SECONDS, confluent_read
from tests.waits import within
from trio_broker.testing.process import BrokerProcess

COMMITTED = [b"value %d" % number for number in (0, 1, 3, 4)]


@pytest.mark.parametrize(
    ("script", "package"),
    [("kafkajs_transactions.js", "kafkajs"), ("platformatic_transactions.mjs", "@platformatic/kafka")],
    ids=["kafkajs", "platformatic"],
)
def test_a_node_client_commits_values_and_offsets_together_and_its_zombie_is_fenced(
    script: str, package: str, broker: BrokerProcess, topic: str
) -> None:
    servers, source, group = broker.bootstrap_servers, f"{topic}-in", f"{topic}-loop"
    admin = AdminClient({"bootstrap.servers": servers})
    for created in admin.create_topics([NewTopic(source, 1, 1), NewTopic(topic, 2, 1)]).values():
        within(created.result, SECONDS)
    seen = run_script(script, package, servers, topic, source, group)

    assert seen["refused"] in ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED")
    assert sorted(confluent_read(servers, topic)) == sorted(COMMITTED * 2)
    asked = [ConsumerGroupTopicPartitions(group)]
    [offset] = within(admin.list_consumer_group_offsets(asked)[group].result, SECONDS).topic_partitions
    assert (offset.topic, offset.offset) == (source, 5)
