"""DescribeUserScramCredentials."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.limits import MAX_STRING_BYTES
from kafka_wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName


@pytest.mark.parametrize("users", [None, []])
async def test_no_user_has_credentials(wire, users):
    response = await wire.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    assert (response.error_code, response.results) == (ErrorCode.NONE, [])


async def test_each_user_asked_about_is_not_found_and_reported_once(wire):
    users = [UserName(name=name) for name in ("a", "b", "a")]
    response = await wire.ask(DescribeUserScramCredentialsRequest(users=users), 0)
    assert response.error_code == ErrorCode.NONE
    assert [(item.user, item.error_code, item.error_message) for item in response.results] == [
        (
            "a",
            ErrorCode.DUPLICATE_RESOURCE,
            "Cannot describe SCRAM credentials for the same user twice in a single request: a",
        ),
        ("b", ErrorCode.RESOURCE_NOT_FOUND, "Attempt to describe a user credential that does not exist: b"),
    ]


async def test_a_name_as_long_as_a_text_may_be_is_answered(wire):
    response = await wire.ask(DescribeUserScramCredentialsRequest(users=[UserName(name="x" * MAX_STRING_BYTES)]), 0)
    assert response.results[0].error_code == ErrorCode.RESOURCE_NOT_FOUND
