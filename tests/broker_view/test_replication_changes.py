"""Elections that the admin app asks for, from what the metadata say."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka_wire.stored.metadata import TopicRecord
from tests.fakes.images import image_of, partition_record
from trio_broker.broker_view.cluster.replication_changes import ReplicationChanges

ORDERS = bytes(16)


async def test_without_names_those_are_elected_that_are_not_led_by_a_preferred_leader_in_sync() -> None:
    led_by_second: dict[str, Any] = {"replicas": (1, 2), "leader": 2}
    image = image_of(
        TopicRecord(name="orders", topic_id=ORDERS),
        partition_record(ORDERS, 0, replicas=(1, 2)),
        partition_record(ORDERS, 1, **led_by_second),
        partition_record(ORDERS, 2, **led_by_second, isr=[2]),
    )
    services: Any = SimpleNamespace(metadata_cache=SimpleNamespace(image=image))
    topics: Any = None
    changes = ReplicationChanges(services, topics)
    [elected] = (await changes.elect_preferred((), dry_run=True)).partitions
    assert (elected.partition, elected.leader, elected.preferred, elected.error) == (1, 2, 1, None)
    [refused] = (await changes.elect_preferred([("orders", 2)], dry_run=True)).partitions
    assert refused.error == "broker 1, the preferred leader, is not in sync"
