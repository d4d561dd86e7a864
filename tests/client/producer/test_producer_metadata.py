"""The leaders that a producer knows."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.client.scripted_client import CLIENT_ID, Pauses
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka
from trio_broker.client.address import parse_addresses
from trio_broker.client.connection_settings import ConnectionSettings
from trio_broker.client.deadline import Deadline
from trio_broker.client.errors import ClientError, Refused, TlsFailed, WriteFailed
from trio_broker.client.producer.producer_metadata import ProducerMetadata


def answer(cluster: Cluster, leader: int, epoch: int) -> Callable[[MetadataRequest, int], MetadataResponse]:
    """The answer of a broker that knows this leader of ``a-0`` in this leader epoch."""

    def metadata(request: MetadataRequest, version: int) -> MetadataResponse:
        response = cluster.metadata(request, version)
        [partition] = response.topics[0].partitions
        partition.leader_id, partition.leader_epoch = leader, epoch
        return response

    return metadata


def test_a_leader_of_before_does_not_replace_the_present_one():
    """A broker that is cut off from the others names it."""
    with ScriptedKafka(node_id=1) as cut_off, ScriptedKafka(node_id=2) as other:
        cluster = Cluster([cut_off, other], topics={"a": [1]})
        cut_off.answers[MetadataRequest] = answer(cluster, 1, 4)
        other.answers[MetadataRequest] = answer(cluster, 2, 5)
        settings = ConnectionSettings(parse_addresses(f"{cut_off.address},{other.address}"), CLIENT_ID)
        metadata = ProducerMetadata(settings, request_seconds=5, block_seconds=5, new_deadline=Pauses().deadline)
        metadata.topic("a")
        leaders = [metadata.leader("a", 0)]
        for _ in range(2):
            metadata.refresh(["a"])
            leaders.append(metadata.leader("a", 0))
        metadata.close()
    assert leaders == [1, 2, 2]
    assert [len(server.requests(MetadataRequest)) for server in (cut_off, other)] == [2, 1]


@pytest.mark.parametrize(
    "error", [Refused("login", ErrorCode.SASL_AUTHENTICATION_FAILED), TlsFailed("another authority")], ids=repr
)
def test_a_refused_login_is_not_tried_again(error: ClientError):
    settings = ConnectionSettings(parse_addresses("localhost:1"), CLIENT_ID)
    metadata = ProducerMetadata(settings, request_seconds=5, block_seconds=5, new_deadline=Pauses().deadline)
    attempts = []

    def ask(deadline: Deadline) -> None:
        attempts.append(deadline)
        raise error

    with pytest.raises(WriteFailed, match=f"^topics: {error}$"):
        metadata.retry("topics", ask)
    assert len(attempts) == 1
