"""A driver that is interrupted in the middle of a commit, at a chosen step.

Steps are the requests that change something at a broker. The interruption comes before the request is sent; right
behind its answer is the same as before the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final
from unittest.mock import patch

import attrs

from kafka_wire.messages.add_partitions_to_txn import AddPartitionsToTxnRequest
from kafka_wire.messages.create_topics import CreateTopicsRequest
from kafka_wire.messages.end_txn import EndTxnRequest
from kafka_wire.messages.init_producer_id import InitProducerIdRequest
from kafka_wire.messages.produce import ProduceRequest
from kafka_wire.schema import Request
from tests.spark.pipelines.crash_points import Killed
from trio_broker.client.connection import BrokerConnection

STEPS: Final = (
    CreateTopicsRequest,
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    ProduceRequest,
    EndTxnRequest,
)


@attrs.define
class DriverSteps:
    """``interruption`` is called before step ``at``, once; what it does itself is no step. ``count`` are those done."""

    at: int
    interruption: Callable[[], None]
    count: int = 0
    was_interrupted: bool = False

    def before(self, request: Request[Any]) -> None:
        """Come to a request."""
        if self.was_interrupted or not isinstance(request, STEPS):
            return
        if self.count == self.at:
            self.was_interrupted = True
            self.interruption()
            return
        self.count += 1


def die() -> None:
    """As a driver that is killed."""
    raise Killed


@contextmanager
def interrupted(at: int, interruption: Callable[[], None]) -> Iterator[DriverSteps]:
    """Call ``interruption`` before step ``at`` of the block, if it comes so far."""
    steps = DriverSteps(at, interruption)
    begin = BrokerConnection.begin

    def begin_step(connection: BrokerConnection, request: Request[Any], *arguments: Any, **named: Any) -> Any:
        steps.before(request)
        return begin(connection, request, *arguments, **named)

    with patch.object(BrokerConnection, "begin", begin_step):
        yield steps
