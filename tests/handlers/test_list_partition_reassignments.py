"""ListPartitionReassignments."""

from __future__ import annotations

import attrs
import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from tests.handlers.admin_client import make_admin_client
from trio_broker.cluster.replication_control import NewTopic
from trio_broker.handlers.list_partition_reassignments import list_partition_reassignments

SOME = [
    ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 7]),
    ListPartitionReassignmentsTopics(name="x", partition_indexes=[0]),
]


@pytest.mark.parametrize("topics", [None, [], SOME])
async def test_no_partition_of_a_broker_alone_is_on_its_way(topics):
    admin = await make_admin_client()
    await admin.controller.create_topics([NewTopic(name="t")])
    response = await admin.ask(list_partition_reassignments, ListPartitionReassignmentsRequest(topics=topics), 0)
    assert (response.error_code, response.error_message, response.topics) == (ErrorCode.NONE, None, [])


async def test_what_is_on_its_way_is_listed_with_those_that_come_and_go():
    admin = await make_admin_client()
    await admin.controller.create_topics([NewTopic(name="t", num_partitions=2), NewTopic(name="u")])
    image = admin.controller.image
    moving = attrs.evolve(
        image.topics["t"].partitions[0], replicas=(2, 1), adding_replicas=(2,), removing_replicas=(1,)
    )
    partitions = {**image.topics["t"].partitions, 0: moving}
    topics = {**image.topics, "t": attrs.evolve(image.topics["t"], partitions=partitions)}
    admin.controller.loader.publisher.cache.set_image(attrs.evolve(image, topics=topics))
    for topics_asked in (None, SOME):
        response = await admin.ask(
            list_partition_reassignments, ListPartitionReassignmentsRequest(topics=topics_asked), 0
        )
        [topic] = response.topics
        [ongoing] = topic.partitions
        assert (topic.name, ongoing.partition_index, ongoing.replicas) == ("t", 0, [2, 1])
        assert (ongoing.adding_replicas, ongoing.removing_replicas) == ([2], [1])
    others = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[1])]
    response = await admin.ask(list_partition_reassignments, ListPartitionReassignmentsRequest(topics=others), 0)
    assert response.topics == []
