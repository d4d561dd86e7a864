"""Every error code of a response is counted, wherever it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from kafka_wire.emit_source import TURN_ELEMENTS
from kafka_wire.error_codes import ErrorCode
from kafka_wire.error_counts import ERROR_WALKS, ERROR_WALKS_IN_TURNS, LARGE, LARGE_ELEMENTS
from kafka_wire.messages.catalogue import all_requests
from kafka_wire.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kafka_wire.messages.list_groups import ListedGroup, ListGroupsResponse
from kafka_wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.protocol.generators import run
from tests.protocol.message_strategies import check_versions

A_FEW = Fraction(1, 10)


def codes_in(value: Any) -> Iterator[int]:
    """The error codes of a message, by a walk over all its attributes."""
    if isinstance(value, list):
        for each in value:
            yield from codes_in(each)
    for name in getattr(type(value), "__slots__", ()):
        if name in ("error_code", "partition_error_code"):
            yield getattr(value, name)
        else:
            yield from codes_in(getattr(value, name, None))


@pytest.mark.parametrize("request_class", all_requests().values(), ids=lambda cls: cls.__name__)
def test_a_walk_over_all_attributes_finds_the_same(request_class: Any) -> None:
    def same(version: int, response: Any) -> None:
        codes = Counter(code for code in codes_in(response) if code)
        assert Counter(ERROR_WALKS[type(response)](response)) == codes
        assert Counter(run(ERROR_WALKS_IN_TURNS[type(response)](response))[0]) == codes

    check_versions(request_class.RESPONSE, same, share=A_FEW)


def test_a_response_without_errors_has_none() -> None:
    assert ERROR_WALKS[ProduceResponse](ProduceResponse(responses=[])) is None


def test_partitions_that_failed_alike_are_reported_each() -> None:
    failed, appended = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE
    response = produced([failed, appended, failed])
    assert ERROR_WALKS[ProduceResponse](response) == {failed: 2}


def test_a_large_response_is_walked_over_in_turns_only() -> None:
    """Each code once: an earlier form copied all codes that were found for each one more."""
    response = produced([ErrorCode.NOT_LEADER_OR_FOLLOWER] * (100 * LARGE_ELEMENTS))
    assert ERROR_WALKS[ProduceResponse](response) is LARGE
    counts, turns = run(ERROR_WALKS_IN_TURNS[ProduceResponse](response))
    assert counts == {ErrorCode.NOT_LEADER_OR_FOLLOWER: 100 * LARGE_ELEMENTS}
    assert turns == 100 * LARGE_ELEMENTS // TURN_ELEMENTS


def test_a_response_is_large_by_all_of_its_arrays() -> None:
    """Also by those without errors in them: they are written, too."""
    assert ERROR_WALKS[ProduceResponse](produced([ErrorCode.NONE] * (LARGE_ELEMENTS - 1))) is None
    assert ERROR_WALKS[ProduceResponse](produced([ErrorCode.NONE] * LARGE_ELEMENTS)) is LARGE
    groups = ListGroupsResponse(
        error_code=0, groups=[ListedGroup(group_id="g", protocol_type="")] * (LARGE_ELEMENTS + 1)
    )
    assert ERROR_WALKS[ListGroupsResponse](groups) is LARGE


def test_elements_of_elements_without_error_codes_count() -> None:
    """The topics of a group's only member, by their names or in its assignment."""
    topics = [TopicPartitions(topic_id=bytes(16), topic_name="t", partitions=[0])] * LARGE_ELEMENTS
    assert ERROR_WALKS[ConsumerGroupDescribeResponse](described(subscribed_topic_names=["t"])) is None
    assert ERROR_WALKS[ConsumerGroupDescribeResponse](described(subscribed_topic_names=["t"] * LARGE_ELEMENTS)) is LARGE
    assert (
        ERROR_WALKS[ConsumerGroupDescribeResponse](described(assignment=Assignment(topic_partitions=topics))) is LARGE
    )


def described(**fields: Any) -> ConsumerGroupDescribeResponse:
    """A response with one group of one member."""
    plain: dict[str, Any] = {
        "member_id": "m",
        "member_epoch": 1,
        "client_id": "",
        "client_host": "",
        "subscribed_topic_names": [],
        "assignment": Assignment(topic_partitions=[]),
        "target_assignment": Assignment(topic_partitions=[]),
    }
    member = Member(**(plain | fields))
    group = DescribedGroup(
        group_id="g", group_state="Stable", group_epoch=1, assignment_epoch=1, assignor_name="", members=[member]
    )
    return ConsumerGroupDescribeResponse(groups=[group])


def produced(codes: list[ErrorCode]) -> ProduceResponse:
    """A response with one topic, and a partition for each code."""
    partitions = [
        PartitionProduceResponse(index=index, error_code=code, base_offset=-1) for index, code in enumerate(codes)
    ]
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=partitions)])
