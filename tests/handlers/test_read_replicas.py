"""Which consumers a leader sends to a replica in their rack (KIP-392)."""

from __future__ import annotations

import pytest

from kafka_wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.fakes.followed_metadata import follow, registered
from tests.fakes.images import partition_record
from tests.handlers.wire_client import WireClient
from trio_broker.config.replication_config import RACK_AWARE_REPLICA_SELECTOR

HERE, THERE = "a", "b"


@pytest.fixture
async def open_leader(open_wire_client):
    """Opens a broker in the rack HERE that leads ``t-1``; a replica in THERE has all that it has."""

    async def open_one(**settings: str) -> WireClient:
        wire: WireClient = await open_wire_client(broker_rack=HERE, **settings)
        await wire.create_topic("t")
        topic_id = wire.services.metadata_cache.image.topics["t"].topic_id
        await follow(wire.services, registered(2, 9093, rack=THERE), partition_record(topic_id, 1, (1, 2)))
        fetched = await fetch(wire, 15, replica_state=ReplicaState(replica_id=2))
        assert fetched.error_code == 0
        return wire

    return open_one


@pytest.fixture
async def leader(open_leader):
    return await open_leader(replica_selector_class=RACK_AWARE_REPLICA_SELECTOR)


async def ask(wire: WireClient, version: int, offset: int = 0, **fields):
    wanted = FetchPartition(partition=1, fetch_offset=offset, log_start_offset=0, partition_max_bytes=1 << 20)
    topic_id = wire.services.metadata_cache.image.topics["t"].topic_id if version >= 13 else bytes(16)
    topic = FetchTopic(topic="" if version >= 13 else "t", topic_id=topic_id, partitions=[wanted])
    return await wire.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic], **fields), version)


async def fetch(wire: WireClient, version: int, offset: int = 0, **fields):
    """What a Fetch without a session is answered about the partition."""
    return (await ask(wire, version, offset, session_epoch=-1, **fields)).responses[0].partitions[0]


@pytest.mark.parametrize(
    ("rack", "replica"), [(THERE, 2), (HERE, -1), ("c", -1), ("", -1)], ids=["there", "here", "nowhere", "unknown"]
)
async def test_a_consumer_reads_in_its_own_rack_if_a_replica_is_there(leader, rack, replica):
    answer = await fetch(leader, 12, rack_id=rack)
    assert (answer.preferred_read_replica, answer.error_code, answer.high_watermark) == (replica, 0, 0)
    assert (await fetch(leader, 12, 1, rack_id=rack)).preferred_read_replica == -1


async def test_without_a_selector_all_consumers_read_from_the_leader(open_leader):
    assert (await fetch(await open_leader(), 12, rack_id=THERE)).preferred_read_replica == -1


async def test_a_replica_on_a_broker_that_the_consumer_does_not_reach_is_left_out(leader):
    await follow(leader.services, registered(2, 9093, rack=THERE, fenced=True))
    assert (await fetch(leader, 12, rack_id=THERE)).preferred_read_replica == -1


async def test_in_a_session_the_replica_is_named_each_time(leader):
    first = await ask(leader, 12, rack_id=THERE, session_epoch=0)
    again = await leader.ask(
        FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[], rack_id=THERE, session_id=first.session_id, session_epoch=1
        ),
        12,
    )
    for answer in (first, again):
        assert answer.responses[0].partitions[0].preferred_read_replica == 2
