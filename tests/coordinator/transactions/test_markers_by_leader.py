"""Markers of transactions go to the brokers that lead their partitions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from kafka_wire.stored.metadata import TopicRecord
from tests.fakes.images import broker_record, image_of, partition_record
from tests.fakes.other_brokers import OtherBrokers, markers_written
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.common.request_phase import ReleaseHandler, ignore_release
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.coordinator.transactions.transaction_marker_channel_manager import TransactionMarkerChannelManager
from trio_broker.network.errors import ResponseLost
from trio_broker.partition.transaction_end import TransactionEnd

ID = bytes(range(16))
HERE, TWO, THREE, NOBODY = 1, 2, 3, -1
LEADERS = (HERE, TWO, THREE, TWO, NOBODY)
"""Of the partitions of ``t``, by index."""

PARTITIONS = [TopicPartition("t", index) for index in range(len(LEADERS))]
NONE = ErrorCode.NONE


def end(producer_id: int = 7, *, committed: bool = True) -> TransactionEnd:
    return TransactionEnd(producer_id, 3, committed, coordinator_epoch=5, transaction_version=2)


@attrs.define
class OwnMarkers:
    """The channel to the broker itself: notes what comes."""

    written: list[tuple[TransactionEnd, list[TopicPartition]]] = attrs.Factory(list)

    def write_steps(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], release_handler: ReleaseHandler
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        self.written.append((end, list(partitions)))
        yield trio.lowlevel.checkpoint
        return dict.fromkeys(partitions, NONE)


@attrs.define
class Cluster:
    """Broker 1 of three, whose markers are asked for."""

    own: OwnMarkers
    others: OtherBrokers
    cache: MetadataCache
    manager: TransactionMarkerChannelManager

    async def write(self, end: TransactionEnd, *partitions: TopicPartition) -> dict[int, ErrorCode]:
        codes = await run_steps(self.manager.write_steps(end, partitions, ignore_release))
        return {each.partition: code for each, code in codes.items()}


def cluster_image(*brokers: int) -> Any:
    partitions = [partition_record(ID, index, (max(leader, 1),), leader=leader) for index, leader in enumerate(LEADERS)]
    return image_of(*map(broker_record, brokers), TopicRecord(name="t", topic_id=ID), *partitions)


@pytest.fixture
async def cluster(nursery: trio.Nursery) -> AsyncIterator[Cluster]:
    own, others, cache = OwnMarkers(), OtherBrokers(), MetadataCache(cluster_image(1, 2, 3))
    manager = TransactionMarkerChannelManager(own, others.as_clients, cache, HERE)
    nursery.start_soon(manager.run)
    await trio.testing.wait_all_tasks_blocked()
    yield Cluster(own, others, cache, manager)
    nursery.cancel_scope.cancel()


def markers(request: WriteTxnMarkersRequest) -> list[tuple[int, bool, int, dict[str, list[int]]]]:
    return [
        (
            marker.producer_id,
            marker.transaction_result,
            marker.coordinator_epoch,
            {topic.name: topic.partition_indexes for topic in marker.topics},
        )
        for marker in request.markers
    ]


async def test_each_leader_gets_the_markers_of_its_partitions(cluster):
    two, three = cluster.others.add(TWO, markers_written), cluster.others.add(THREE, markers_written)
    codes = await cluster.write(end(), *PARTITIONS[:4], TopicPartition("gone", 9))
    assert codes == {0: NONE, 1: NONE, 2: NONE, 3: NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert cluster.own.written == [(end(), [PARTITIONS[0]])]
    assert [markers(each) for each in two.asked] == [[(7, True, 5, {"t": [1, 3]})]]
    assert [markers(each) for each in three.asked] == [[(7, True, 5, {"t": [2]})]]
    assert two.asked[0].markers[0].transaction_version == 2


async def test_markers_that_wait_for_one_broker_go_together(cluster, nursery):
    """And never two of one producer, whose answers would be mixed up."""
    two = cluster.others.add(TWO, markers_written, answers=False)
    for producer_id, partition in ((1, 1), (2, 1), (3, 1), (2, 3)):
        nursery.start_soon(cluster.write, end(producer_id), PARTITIONS[partition])
        await trio.testing.wait_all_tasks_blocked()
    two.may_answer.set()
    await trio.testing.wait_all_tasks_blocked()
    sent = [[(each[0], each[3]["t"]) for each in markers(request)] for request in two.asked]
    assert sent == [[(1, [1])], [(2, [1]), (3, [1])], [(2, [3])]]


async def test_a_broker_that_does_not_answer_is_to_be_asked_again_and_holds_up_no_other(cluster):
    lost = cluster.others.add(TWO, ResponseLost("broker 2: the connection broke"))
    cluster.others.add(THREE, markers_written)
    codes = await cluster.write(end(), *PARTITIONS)
    lost_codes = dict.fromkeys((1, 3), ErrorCode.NETWORK_EXCEPTION)
    assert codes == {0: NONE, 2: NONE, 4: ErrorCode.LEADER_NOT_AVAILABLE} | lost_codes
    lost.answer = markers_written
    assert await cluster.write(end(), PARTITIONS[1]) == {1: NONE}


async def test_a_broker_whose_address_is_not_known_is_to_be_asked_again(cluster):
    assert await cluster.write(end(), PARTITIONS[1]) == {1: ErrorCode.NETWORK_EXCEPTION}


async def test_each_partition_keeps_its_own_code(cluster):
    cluster.others.add(TWO, lambda request: markers_written(request, ErrorCode.TRANSACTION_COORDINATOR_FENCED))
    codes = await cluster.write(end(), PARTITIONS[0], PARTITIONS[1])
    assert codes == {0: NONE, 1: ErrorCode.TRANSACTION_COORDINATOR_FENCED}


async def test_what_an_answer_leaves_out_is_to_be_asked_again(cluster, caplog):
    cluster.others.add(TWO, lambda request: WriteTxnMarkersResponse(markers=[]))
    assert await cluster.write(end(), PARTITIONS[1]) == {1: ErrorCode.UNKNOWN_SERVER_ERROR}


async def test_a_bug_in_an_exchange_concerns_its_markers_alone(cluster, caplog):
    broken = cluster.others.add(TWO, lambda request: 1 / 0)
    assert await cluster.write(end(), PARTITIONS[1]) == {1: ErrorCode.NETWORK_EXCEPTION}
    assert "ZeroDivisionError" in caplog.text
    broken.answer = markers_written
    assert await cluster.write(end(), PARTITIONS[1]) == {1: NONE}


async def test_a_broker_alone_writes_all_markers_itself(cluster):
    cluster.cache.set_image(cluster_image(1))
    assert await cluster.write(end(), *PARTITIONS) == dict.fromkeys(range(5), NONE)
    assert cluster.own.written == [(end(), PARTITIONS)]


async def test_nothing_is_sent_before_the_channels_run():
    cache = MetadataCache(cluster_image(1, 2, 3))
    manager = TransactionMarkerChannelManager(OwnMarkers(), OtherBrokers().as_clients, cache, HERE)
    codes = await run_steps(manager.write_steps(end(), [PARTITIONS[1]], ignore_release))
    assert codes == {PARTITIONS[1]: ErrorCode.NETWORK_EXCEPTION}
