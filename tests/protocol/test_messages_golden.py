"""What real clients sent, byte for byte: it means what it meant when it was recorded, and we would write the same.

The frames were recorded with ``record_golden_frames``; their readings were looked over by hand at that time. Here the
recorded meaning is compared as a whole, and what matters to a broker is spelled out below.
"""

from __future__ import annotations

from typing import Any

import pytest

from kafka_wire.codec import decode, encode_bytes
from kafka_wire.headers import read_request_header, request_header
from kafka_wire.messages.catalogue import all_requests
from tests.protocol.golden_frames import GoldenFrame, describe, load_golden_frames

GOLDEN_FRAMES = load_golden_frames()

NEVER_SENT = {
    "OffsetForLeaderEpochRequest",
    "CreateDelegationTokenRequest",
    "RenewDelegationTokenRequest",
    "ExpireDelegationTokenRequest",
    "DescribeDelegationTokenRequest",
    "DescribeClientQuotasRequest",
    "AlterClientQuotasRequest",
    "UnregisterBrokerRequest",
    "AlterPartitionRequest",
    "BrokerRegistrationRequest",
    "BrokerHeartbeatRequest",
    "AllocateProducerIdsRequest",
    "AssignReplicasToDirsRequest",
    "EnvelopeRequest",
    "SaslHandshakeRequest",
    "SaslAuthenticateRequest",
    "AlterUserScramCredentialsRequest",
}
"""Clients send OffsetForLeaderEpoch only after the leader has changed, which the recorder's broker does not do. None of
the three has an admin call for delegation tokens, for quotas or for taking a broker out. Then come six between brokers,
and three about users, whom the recorder's broker does not have.
"""

each_frame = pytest.mark.parametrize("golden", GOLDEN_FRAMES, ids=str)


def body(golden: GoldenFrame) -> Any:
    header, position = read_request_header(golden.frame)
    return decode(all_requests()[header.api_key], header.api_version, golden.frame, position)[0]


def frames_of(client: str, request: str) -> list[GoldenFrame]:
    found = [golden for golden in GOLDEN_FRAMES if (golden.client, golden.request) == (client, request)]
    assert found, f"no {request} of {client}"
    return found


@each_frame
def test_a_recorded_frame_still_means_what_it_meant(golden: GoldenFrame) -> None:
    assert describe(golden.client, golden.client_version, golden.frame) == golden


@each_frame
def test_a_recorded_frame_is_written_again_as_the_client_wrote_it(golden: GoldenFrame) -> None:
    """Up to the bytes the client left over, for which no field stands."""
    header, position = read_request_header(golden.frame)
    assert request_header(header) == golden.frame[:position]
    written = encode_bytes(body(golden), header.api_version)
    assert written == golden.frame[position : len(golden.frame) - golden.left_over]


def test_every_request_was_recorded_from_some_client() -> None:
    recorded = {golden.request for golden in GOLDEN_FRAMES}
    assert recorded == {request.__name__ for request in all_requests().values()} - NEVER_SENT
    assert {golden.client for golden in GOLDEN_FRAMES} == {"confluent-kafka", "kafka-python", "aiokafka"}


def test_librdkafkas_request_for_all_topics_leaves_three_bytes_over() -> None:
    """They are all that is left over anywhere, and what comes before them reads as it should."""
    (golden,) = (golden for golden in GOLDEN_FRAMES if golden.left_over)
    assert (golden.client, golden.request, golden.left_over) == ("confluent-kafka", "MetadataRequest", 3)
    assert golden.version >= 9
    assert golden.frame.endswith(bytes(3))
    request = body(golden)
    assert request.topics is None
    assert not request.allow_auto_topic_creation


def test_clients_ask_for_the_brokers_alone_with_an_empty_list() -> None:
    for client in ("confluent-kafka", "kafka-python", "aiokafka"):
        assert [] in [body(golden).topics for golden in frames_of(client, "MetadataRequest")]


def test_clients_name_their_software_from_version_3_on() -> None:
    names = {
        body(golden).client_software_name: golden.version for golden in GOLDEN_FRAMES if "ApiVersions" in str(golden)
    }
    assert names == {"": 0, "confluent-kafka-python": 3, "kafka-python": 4}


def test_a_producer_without_transactions_sends_any_timeout() -> None:
    timeouts = {}
    for client in ("confluent-kafka", "kafka-python", "aiokafka"):
        requests = [body(golden) for golden in frames_of(client, "InitProducerIdRequest")]
        (timeouts[client],) = (each.transaction_timeout_ms for each in requests if each.transactional_id is None)
    assert timeouts == {"confluent-kafka": -1, "kafka-python": 0, "aiokafka": 2**31 - 1}


def test_no_python_client_speaks_the_second_transaction_protocol() -> None:
    """Their transactions name each partition and each group first, and end without a new epoch."""
    newest = {
        (client, request): max(golden.version for golden in frames_of(client, f"{request}Request"))
        for client in ("confluent-kafka", "kafka-python", "aiokafka")
        for request in ("Produce", "AddPartitionsToTxn", "AddOffsetsToTxn", "TxnOffsetCommit", "EndTxn")
    }
    first_of_the_second = {"Produce": 12, "AddPartitionsToTxn": 4, "TxnOffsetCommit": 5, "EndTxn": 5}
    assert all(version < first_of_the_second.get(request, 4) for (_, request), version in newest.items()), newest


def test_clients_differ_in_whether_they_want_a_fetch_session() -> None:
    wanted = {"confluent-kafka": -1, "aiokafka": -1, "kafka-python": 0}
    for client, session_epoch in wanted.items():
        for golden in frames_of(client, "FetchRequest"):
            request = body(golden)
            assert (request.session_id, request.session_epoch) == (0, session_epoch)


def test_librdkafka_reads_committed_records_by_default() -> None:
    assert {body(golden).isolation_level for golden in frames_of("confluent-kafka", "FetchRequest")} == {1}


def test_librdkafka_joins_by_topics_with_an_empty_expression_and_by_one_in_brackets() -> None:
    """Under an id of its own making; what did not change is null in the heartbeats after that."""
    joins = [body(golden) for golden in frames_of("confluent-kafka", "ConsumerGroupHeartbeatRequest")]
    said = {
        (request.member_epoch, tuple(request.subscribed_topic_names or ()), request.subscribed_topic_regex)
        for request in joins
    }
    assert said == {(0, ("golden",), ""), (0, (), "(^golden.*)"), (1, (), None)}
    assert all(len(request.member_id) == 22 for request in joins)


def test_librdkafka_describes_groups_as_consumer_groups_first() -> None:
    (asked,) = frames_of("confluent-kafka", "ConsumerGroupDescribeRequest")
    (asked_again,) = frames_of("confluent-kafka", "DescribeGroupsRequest")
    assert (asked.version, asked_again.version) == (0, 5)
    assert body(asked).group_ids == body(asked_again).groups


def test_clients_ask_for_the_credentials_of_all_users_with_an_empty_list_or_null() -> None:
    for client, all_users in (("confluent-kafka", list[Any]()), ("kafka-python", None)):
        asked = [body(golden).users for golden in frames_of(client, "DescribeUserScramCredentialsRequest")]
        assert all_users in asked


def test_librdkafka_asks_for_the_election_of_all_leaders_with_null() -> None:
    assert None in [body(golden).topic_partitions for golden in frames_of("confluent-kafka", "ElectLeadersRequest")]


def test_kafka_python_ends_a_reassignment_with_null_replicas() -> None:
    requests = [body(golden) for golden in frames_of("kafka-python", "AlterPartitionReassignmentsRequest")]
    assert [request.topics[0].partitions[0].replicas for request in requests] == [None, [1]]


def test_records_of_a_produce_request_are_a_view_of_its_frame() -> None:
    for golden in GOLDEN_FRAMES:
        if golden.request == "ProduceRequest":
            records = body(golden).topic_data[0].partition_data[0].records
            assert isinstance(records, memoryview)
            assert records.obj is golden.frame
            assert b"value" in bytes(records)
