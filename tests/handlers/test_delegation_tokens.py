"""The four APIs of delegation tokens, which a client that is not authenticated may not use."""

from __future__ import annotations

import pytest

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_delegation_token import CreateDelegationTokenRequest
from kafka_wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from kafka_wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafka_wire.messages.renew_delegation_token import RenewDelegationTokenRequest

CREATE = CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1)


@pytest.mark.parametrize(
    "request_",
    [
        CREATE,
        RenewDelegationTokenRequest(hmac=b"token", renew_period_ms=1),
        ExpireDelegationTokenRequest(hmac=b"token", expiry_time_period_ms=1),
        DescribeDelegationTokenRequest(owners=None),
    ],
    ids=lambda request: type(request).__name__,
)
async def test_every_version_is_refused(wire, request_):
    versions = type(request_).VERSIONS
    for version in range(versions.low, versions.high + 1):
        response = await wire.ask(request_, version)
        assert response.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


async def test_the_refusal_names_the_owner_asked_for_and_who_asks(wire):
    response = await wire.ask(CREATE, 2)
    assert (response.principal_type, response.principal_name) == ("User", "ANONYMOUS")
    asked = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="ann", renewers=[], max_lifetime_ms=-1
    )
    response = await wire.ask(asked, 3)
    assert (response.principal_name, response.token_requester_principal_name) == ("ann", "ANONYMOUS")
