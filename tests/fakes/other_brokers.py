"""The other brokers of a cluster, of which a test says what they answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import attrs
import trio

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from trio_broker.cluster.broker_clients import BrokerClients
from trio_broker.network.errors import RequestFailed, RequestNotSent


@attrs.define
class OtherBroker:
    """Answers requests with ``answer``, or fails with it, once ``may_answer`` is set; ``asked`` are those requests."""

    answer: Callable[[Any], Any] | RequestFailed
    asked: list[Any] = attrs.Factory(list)
    may_answer: trio.Event = attrs.Factory(trio.Event)

    async def send(self, message: Any, *, timeout_seconds: float) -> Any:
        self.asked.append(message)
        await self.may_answer.wait()
        if isinstance(self.answer, RequestFailed):
            raise self.answer
        return self.answer(message)


@attrs.define
class OtherBrokers:
    """Those that can be reached, by id, in place of ``BrokerClients``."""

    brokers: dict[int, OtherBroker] = attrs.Factory(dict)

    def add(self, broker_id: int, answer: Callable[[Any], Any] | RequestFailed, *, answers: bool = True) -> OtherBroker:
        broker = self.brokers[broker_id] = OtherBroker(answer)
        if answers:
            broker.may_answer.set()
        return broker

    @property
    def as_clients(self) -> BrokerClients:
        return cast(BrokerClients, self)

    async def run(self) -> None:
        await trio.sleep_forever()

    def client(self, broker_id: int) -> OtherBroker:
        if (broker := self.brokers.get(broker_id)) is None:
            raise RequestNotSent(f"broker {broker_id} is not there")
        return broker


def markers_written(request: WriteTxnMarkersRequest, code: ErrorCode = ErrorCode.NONE) -> WriteTxnMarkersResponse:
    """The answer of a broker that writes each marker, or none."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
