"""ListPartitionReassignments."""

from __future__ import annotations

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
async def test_no_partition_is_ever_on_its_way(topics):
    admin = await make_admin_client()
    await admin.controller.create_topics([NewTopic(name="t")])
    response = await admin.ask(list_partition_reassignments, ListPartitionReassignmentsRequest(topics=topics), 0)
    assert (response.error_code, response.error_message, response.topics) == (ErrorCode.NONE, None, [])
