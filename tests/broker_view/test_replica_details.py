"""Why a replica is not in sync, as the admin app says it."""

from __future__ import annotations

from kafka_wire.stored.metadata import TopicRecord
from tests.fakes.images import broker_record, image_of, partition_record
from trio_broker.broker_view.cluster.replica_details import reason_out_of_sync


def test_a_broker_that_was_stopped_is_fenced_and_not_stopping_any_more() -> None:
    topic_id = bytes(16)
    for fenced, reason in ((False, "broker 2 is stopping"), (True, "broker 2 is fenced: out of contact")):
        image = image_of(
            broker_record(2, fenced=fenced, in_controlled_shutdown=True),
            TopicRecord(name="orders", topic_id=topic_id),
            partition_record(topic_id, 0, replicas=(1, 2), isr=[1]),
        )
        assert reason_out_of_sync(image, image.topics["orders"].partitions[0], 2, None) == reason
