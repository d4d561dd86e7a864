"""Every error code of a response is counted, wherever it stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.error_counts import ERROR_WALKS
from kafka_wire.messages.catalogue import all_requests
from kafka_wire.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from tests.protocol.message_strategies import check_versions

A_FEW = Fraction(1, 10)


def codes_in(value: Any) -> Iterator[int]:
    """The error codes of a message, by a walk over all its attributes."""
    if isinstance(value, list):
        for each in value:
            yield from codes_in(each)
    for name in getattr(type(value), "__slots__", ()):
        if name == "error_code":
            yield value.error_code
        else:
            yield from codes_in(getattr(value, name, None))


@pytest.mark.parametrize("request_class", all_requests().values(), ids=lambda cls: cls.__name__)
def test_a_walk_over_all_attributes_finds_the_same(request_class: Any) -> None:
    def same(version: int, response: Any) -> None:
        codes = Counter(code for code in codes_in(response) if code)
        assert Counter(ERROR_WALKS[type(response)](response)) == codes

    check_versions(request_class.RESPONSE, same, share=A_FEW)


def test_a_response_without_errors_has_none() -> None:
    assert ERROR_WALKS[ProduceResponse](ProduceResponse(responses=[])) is None


def test_partitions_that_failed_alike_are_told_each() -> None:
    failed, appended = ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NONE
    partitions = [
        PartitionProduceResponse(index=index, error_code=code, base_offset=-1)
        for index, code in enumerate([failed, appended, failed])
    ]
    response = ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=partitions)])
    assert ERROR_WALKS[ProduceResponse](response) == [failed, failed]
