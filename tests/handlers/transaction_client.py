"""A broker with its coordinators running but no network, and transactional producers of any version that talk to it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import trio

from kafka_wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kafka_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafka_wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kafka_wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from kafka_wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kafka_wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafka_wire.messages.write_txn_markers import WritableTxnMarker, WritableTxnMarkerTopic, WriteTxnMarkersRequest
from kafka_wire.records.batch import build_batch
from kafka_wire.records.record import NewRecord
from kafka_wire.stored.transactions import TransactionStatus
from tests.handlers.wire_client import ADVERTISED, WireClient, broker_config, new_dispatcher
from tests.running_broker import until
from tests.storage.log_content import found_batches
from trio_broker.bootstrap import open_services
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.coordinator.runtime.producer import ProducerIdAndEpoch
from trio_broker.coordinator.transactions.transaction_coordinator import TransactionCoordinator
from trio_broker.coordinator.transactions.transaction_metadata import COMPLETED
from trio_broker.partition.partition import Partition
from trio_broker.runtime.clock import ManualClock
from trio_broker.runtime.real import real_runtime
from trio_broker.runtime.workers import Workers
from trio_broker.storage.producer_replay import read_transaction_marker

ADD_BATCHED, ADD_BY_CLIENTS = 4, 3
LAST_OF_THE_FIRST_PROTOCOL = 4
"""Of EndTxn, AddOffsetsToTxn and TxnOffsetCommit."""
PRODUCE_FIRST_PROTOCOL, PRODUCE_SECOND_PROTOCOL = 11, 12
LATEST_INIT = 5


@attrs.define
class TransactionClient:
    """Producers on one connection; what is asked is one request of the version given, through its bytes."""

    wire: WireClient

    @property
    def coordinator(self) -> TransactionCoordinator:
        return self.wire.services.transactions

    # ---- requests -------------------------------------------------------------------------------------------------

    async def init(self, transactional_id: str, version: int = LATEST_INIT, **fields: Any) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=fields.pop("timeout_ms", 60_000),
            **fields,
        )
        response: InitProducerIdResponse = await self.wire.ask(request, version)
        return response

    async def begin(self, transactional_id: str = "id") -> ProducerIdAndEpoch:
        """A producer takes the id; the producer."""
        response = await self.init(transactional_id)
        assert response.error_code == 0, response
        return ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

    async def add(
        self,
        producer: ProducerIdAndEpoch,
        *partitions: int,
        topic: str = "t",
        transactional_id: str = "id",
        version: int = ADD_BY_CLIENTS,
    ) -> dict[int, int]:
        """Add partitions of one topic, in the form of clients; the code of each."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer.producer_id,
            v3_and_below_producer_epoch=producer.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        response = await self.wire.ask(request, version)
        [result] = response.results_by_topic_v3_and_below
        return {each.partition_index: each.partition_error_code for each in result.results_by_partition}

    async def add_group(
        self,
        producer: ProducerIdAndEpoch,
        group_id: str = "g",
        *,
        transactional_id: str = "id",
        version: int = LAST_OF_THE_FIRST_PROTOCOL,
    ) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            group_id=group_id,
        )
        code: int = (await self.wire.ask(request, version)).error_code
        return code

    async def commit_offset(
        self,
        producer: ProducerIdAndEpoch,
        offset: int,
        group_id: str = "g",
        *,
        transactional_id: str = "id",
        version: int = LAST_OF_THE_FIRST_PROTOCOL,
        **fields: Any,
    ) -> int:
        """Commit an offset in partition 0 of ``t``; its code. ``fields`` are others of the request."""
        partition = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
        [code] = await self._commit([partition], producer, group_id, transactional_id, version, **fields)
        return code

    async def commit_offsets(
        self,
        producer: ProducerIdAndEpoch,
        partitions: list[int],
        group_id: str = "g",
        *,
        transactional_id: str = "id",
        version: int = LAST_OF_THE_FIRST_PROTOCOL + 1,
    ) -> list[int]:
        """Commit an offset in each of these partitions of ``t``, which may be named more than once; their codes."""
        commits = [
            TxnOffsetCommitRequestPartition(partition_index=index, committed_offset=7, committed_metadata=None)
            for index in partitions
        ]
        return await self._commit(commits, producer, group_id, transactional_id, version)

    async def _commit(
        self,
        commits: list[TxnOffsetCommitRequestPartition],
        producer: ProducerIdAndEpoch,
        group_id: str,
        transactional_id: str,
        version: int,
        **fields: Any,
    ) -> list[int]:
        topic_id = fields.pop("topic_id", self.wire.services.metadata_cache.image.topics["t"].topic_id)
        request = TxnOffsetCommitRequest(
            transactional_id=transactional_id,
            group_id=group_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            topics=[TxnOffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=commits)],
            **fields,
        )
        response = await self.wire.ask(request, version)
        return [each.error_code for each in response.topics[0].partitions]

    async def produce(
        self,
        producer: ProducerIdAndEpoch,
        partition: int = 0,
        *,
        sequence: int = 0,
        transactional_id: str | None = "id",
        version: int = PRODUCE_FIRST_PROTOCOL,
        is_transactional: bool = True,
    ) -> int:
        """Write one record to a partition of ``t``; its code."""
        records = build_batch(
            [NewRecord(self.wire.clock.now_ms(), b"key", b"value")],
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            base_sequence=sequence,
            transactional=is_transactional,
        )
        data = PartitionProduceData(index=partition, records=memoryview(bytearray(records)))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=5000,
            topic_data=[TopicProduceData(name="t", partition_data=[data])],
        )
        response = await self.wire.ask(request, version)
        code: int = response.responses[0].partition_responses[0].error_code
        return code

    async def end(
        self,
        producer: ProducerIdAndEpoch,
        *,
        commits: bool = True,
        transactional_id: str = "id",
        version: int = LAST_OF_THE_FIRST_PROTOCOL,
    ) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=transactional_id,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=commits,
        )
        response: EndTxnResponse = await self.wire.ask(request, version)
        return response

    async def write_marker(
        self, producer: ProducerIdAndEpoch, partition: int = 0, *, topic: str = "t", coordinator_epoch: int = 0
    ) -> int:
        """Abort the transaction of ``producer`` in one partition, as an administrator may; its code."""
        marker = WritableTxnMarker(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transaction_result=False,
            topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[partition])],
            coordinator_epoch=coordinator_epoch,
        )
        response = await self.wire.ask(WriteTxnMarkersRequest(markers=[marker]), 1)
        code: int = response.markers[0].topics[0].partitions[0].error_code
        return code

    # ---- what has come of it --------------------------------------------------------------------------------------

    def status(self, transactional_id: str = "id") -> TransactionStatus:
        return self.coordinator.describe(transactional_id).metadata.status

    async def completed(self, *transactional_ids: str) -> None:
        """Wait until the transactions of these ids (``id`` without any) are complete."""
        ids = transactional_ids or ("id",)
        await until(lambda: all(self.status(each) in COMPLETED for each in ids))

    def partition(self, index: int = 0, topic: str = "t") -> Partition:
        return self.wire.services.replicas.topic(topic).partition(index)

    def state_partition(self, transactional_id: str = "id") -> Partition:
        """The partition of ``__transaction_state`` that has the transactional id."""
        return self.coordinator.runtime.shard_for(transactional_id).log.partition

    def markers(self, index: int = 0, topic: str = "t") -> list[tuple[int, int, bool]]:
        """Producer, its epoch, and whether it is a commit, of each marker in a partition."""
        return [each for each in self.contents(index, topic) if isinstance(each, tuple)]

    def contents(self, index: int = 0, topic: str = "t") -> list[tuple[int, int, bool] | int]:
        """Each batch of a partition: a marker as ``markers`` has it, otherwise the number of records."""
        contents: list[tuple[int, int, bool] | int] = []
        for batch in found_batches(self.partition(index, topic).log):
            header = batch.header
            if header.is_control:
                marker = read_transaction_marker(batch)
                assert marker is not None
                contents.append((header.producer_id, header.producer_epoch, not marker.aborted))
            else:
                contents.append(header.record_count)
        return contents

    def partitions_of(self, transactional_id: str = "id") -> set[TopicPartition]:
        return set(self.coordinator.describe(transactional_id).partitions)


@asynccontextmanager
async def running_transactions(
    directory: Path, clock: ManualClock | None = None, *, workers: Workers | None = None, **settings: str
) -> AsyncIterator[TransactionClient]:
    """A broker on ``directory``, new or as it was left, with a topic ``t`` of three partitions."""
    clock = clock or ManualClock()
    defaults = {"offsets_topic_num_partitions": "1", "transaction_state_log_num_partitions": "2"}
    config = broker_config(directory, **defaults | settings)
    runtime = real_runtime(clock)
    runtime = attrs.evolve(runtime, workers=workers or runtime.workers)
    async with open_services(config, runtime, ADVERTISED) as services, trio.open_nursery() as nursery:
        await nursery.start(services.replicas.run)
        client = TransactionClient(WireClient(new_dispatcher(services), clock))
        await nursery.start(services.groups.run)
        await nursery.start(services.transactions.run)
        nursery.start_soon(services.transaction_verification.run)
        if "t" not in services.metadata_cache.image.topics:
            await client.wire.create_topic("t", partitions=3)
        await services.groups.find("g")
        await services.transactions.runtime._create_topic()
        await until(lambda: all(shard.is_active for shard in services.transactions.runtime.shards.values()))
        await until(lambda: not services.groups.statistics().loading)
        yield client
        services.groups.runtime.close()
        services.transactions.runtime.close()
        nursery.cancel_scope.cancel()
