"""How the markers of a transaction reach the brokers that lead its partitions.

Those of this broker are written directly; the others go by WriteTxnMarkers, with those of other transactions that wait
for the same broker. Who leads a partition is asked anew at each try.

Source: Kafka's TransactionMarkerChannelManager.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Final, Protocol, TypeAlias

import attrs

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from trio_broker.cluster.broker_clients import BrokerClients
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import NO_LEADER, MetadataImage
from trio_broker.common.request_phase import ReleaseHandler, RequestPhase
from trio_broker.common.topic_partition import TopicPartition, by_topic
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget
from trio_broker.coordinator.transactions.inter_broker_sender import (
    REQUEST_TIMEOUT_SECONDS,
    InterBrokerSender,
    SentItem,
)
from trio_broker.network.errors import RequestFailed
from trio_broker.network.network_client import NetworkClient
from trio_broker.partition.transaction_end import TransactionEnd

MARKER_RETRY_SECONDS: Final = 0.5
"""After which markers that could not be written are tried again: short against a client that waits for its next
transaction, long against a disk that is full for minutes."""

MarkerCodes: TypeAlias = Mapping[TopicPartition, ErrorCode]


class MarkerChannel(Protocol):
    """Ends transactions in partitions of one broker."""

    def write_steps(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], release_handler: ReleaseHandler
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        """End the transaction in ``partitions``, each of which comes once; the code of each, NONE where the marker is
        durable.
        """
        ...


@attrs.frozen
class Markers:
    """The end of one transaction in partitions of one broker."""

    end: TransactionEnd
    partitions: Sequence[TopicPartition]

    def on_the_wire(self) -> WritableTxnMarker:
        end = self.end
        return WritableTxnMarker(
            producer_id=end.producer_id,
            producer_epoch=end.producer_epoch,
            transaction_result=end.committed,
            topics=[
                WritableTxnMarkerTopic(name=topic, partition_indexes=indexes)
                for topic, indexes in by_topic(self.partitions).items()
            ],
            coordinator_epoch=end.coordinator_epoch,
            transaction_version=end.transaction_version,
        )

    def codes(self, result: WritableTxnMarkerResult | None) -> MarkerCodes:
        """The code of each partition; that of one which the answer leaves out says that it is to be tried again."""
        answered = {
            TopicPartition(topic.name, each.partition_index): ErrorCode(each.error_code)
            for topic in (() if result is None else result.topics)
            for each in topic.partitions
        }
        return {each: answered.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in self.partitions}


class TransactionMarkerChannelManager:
    """See the head of the file. ``local`` is the channel to this broker itself."""

    def __init__(
        self, local: MarkerChannel, clients: BrokerClients, metadata_cache: MetadataCache, node_id: int
    ) -> None:
        self._local = local
        self._metadata_cache = metadata_cache
        self._node_id = node_id
        self._sender: InterBrokerSender[Markers, MarkerCodes] = InterBrokerSender(
            "markers of transactions", clients, exchange_markers, key=lambda markers: markers.end.producer_id
        )

    async def run(self) -> None:
        """Send markers to other brokers until cancelled."""
        await self._sender.run()

    def write_steps(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], release_handler: ReleaseHandler
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        """End the transaction in ``partitions``, each of which comes once; the code of each, NONE where the marker is
        durable.
        """
        if self._metadata_cache.image.has_one_broker:
            return self._local.write_steps(end, partitions, release_handler)
        return self._write_by_leader(end, partitions, release_handler)

    def _write_by_leader(
        self, end: TransactionEnd, partitions: Collection[TopicPartition], release_handler: ReleaseHandler
    ) -> Steps[dict[TopicPartition, ErrorCode]]:
        image, budget = self._metadata_cache.image, YieldBudget()
        codes: dict[TopicPartition, ErrorCode] = {}
        by_leader: dict[int, list[TopicPartition]] = {}
        for each in partitions:
            if (leader := leader_of(image, each)) is None:
                codes[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif leader == NO_LEADER:
                codes[each] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                by_leader.setdefault(leader, []).append(each)
            if budget.is_spent:
                yield budget.renewed
        here = by_leader.pop(self._node_id, ())
        sent = [self._sender.send(leader, Markers(end, led)) for leader, led in by_leader.items()]
        if here:
            codes |= yield from self._local.write_steps(end, here, release_handler)
        if sent:
            release_handler(RequestPhase.PURGATORY)
            yield partial(add_codes, sent, codes)
        return codes


def leader_of(image: MetadataImage, partition: TopicPartition) -> int | None:
    """Who leads a partition; None if there is no such one, as when its topic was deleted."""
    found = image.partition(partition.topic, partition.partition)
    return None if found is None else found.leader


async def exchange_markers(client: NetworkClient, batch: Sequence[Markers]) -> list[MarkerCodes]:
    """Have a broker write the markers, and return what came of each.

    Raises:
        RequestFailed: it is not known which of them were written, or none was.
    """
    request = WriteTxnMarkersRequest(markers=[markers.on_the_wire() for markers in batch])
    response = await client.send(request, timeout_seconds=REQUEST_TIMEOUT_SECONDS)
    results = {result.producer_id: result for result in response.markers}
    return [markers.codes(results.get(markers.end.producer_id)) for markers in batch]


async def add_codes(sent: Sequence[SentItem[Markers, MarkerCodes]], codes: dict[TopicPartition, ErrorCode]) -> None:
    """Wait for the answers of all brokers; the markers of one that does not answer are to be tried again."""
    for each in sent:
        try:
            codes.update(await each.result())
        except RequestFailed:
            codes.update(dict.fromkeys(each.item.partitions, ErrorCode.NETWORK_EXCEPTION))
