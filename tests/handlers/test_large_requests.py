"""Requests whose answers tell of thousands of things do not keep the event loop to themselves.

Those that name thousands of unknown ones are those of ``test_largest_requests``.
"""

from __future__ import annotations

import pytest

from kafka_wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kafka_wire.messages.describe_groups import DescribeGroupsRequest
from kafka_wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchResponseGroup, OffsetFetchResponseTopics
from tests.handlers.admin_client import make_admin_client
from tests.handlers.loop_rounds import counted_rounds
from tests.handlers.scripted_groups import ScriptedGroups, classic_group, consumer_group
from tests.handlers.wire_client import ADVERTISED
from trio_broker.concurrency import yield_budget
from trio_broker.handlers.consumer_group_describe import consumer_group_describe
from trio_broker.handlers.describe_groups import describe_groups
from trio_broker.handlers.fetch import PARTITIONS_PER_LOOK
from trio_broker.handlers.offset_fetch import offset_fetch
from trio_broker.handlers.support.services import NodeInfo

COUNT = 2000
NAMES = [f"name-{number}" for number in range(COUNT)]

DESCRIBE = DescribeGroupsRequest(groups=NAMES)
DESCRIBE_CONSUMERS = ConsumerGroupDescribeRequest(group_ids=NAMES, include_authorized_operations=False)
FETCH = OffsetFetchRequest(group_id="g", topics=None)


def much_committed(request):
    return OffsetFetchResponseGroup(
        group_id="g", topics=[OffsetFetchResponseTopics(name=name, partitions=[]) for name in NAMES]
    )


@pytest.mark.parametrize(
    ("handler", "request_", "version", "answer"),
    [
        pytest.param(describe_groups, DESCRIBE, 6, classic_group, id="DescribeGroups"),
        pytest.param(consumer_group_describe, DESCRIBE_CONSUMERS, 1, consumer_group, id="ConsumerGroupDescribe"),
        pytest.param(offset_fetch, FETCH, 7, much_committed, id="OffsetFetch"),
    ],
)
async def test_others_have_the_loop_now_and_then(monkeypatch, handler, request_, version, answer):
    monkeypatch.setattr(yield_budget, "YIELD_BUDGET_SECONDS", -1.0)  # else the machine decides how much a turn is
    client = await make_admin_client()
    client.node = NodeInfo(1, "cluster", None, ADVERTISED)
    client.groups = ScriptedGroups(answer)
    async with counted_rounds() as rounds:
        await client.ask(handler, request_, version)
    assert rounds.count >= COUNT // PARTITIONS_PER_LOOK // 2
