"""The four APIs of delegation tokens: who may create, see, prolong and end them, and log in by one."""

from __future__ import annotations

from base64 import b64encode

import attrs
import pytest

from kafka_wire.acl import AclOperation, ResourceType
from kafka_wire.codec import encode_bytes
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from kafka_wire.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from kafka_wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from kafka_wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from tests.handlers.acls import SECURE, allow, entry
from tests.handlers.wire_client import WireClient
from trio_broker.cluster.delegation_token_control import find_token_login, token_hmac, token_records
from trio_broker.security.kafka_principal import KafkaPrincipal

SECRET_KEY = "of the cluster"
HOUR_MS, DAY_MS = 3_600_000, 86_400_000
REQUESTS = [
    CreateDelegationTokenRequest(renewers=[], max_lifetime_ms=-1),
    RenewDelegationTokenRequest(hmac=b"token", renew_period_ms=1),
    ExpireDelegationTokenRequest(hmac=b"token", expiry_time_period_ms=1),
    DescribeDelegationTokenRequest(owners=None),
]
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED


@pytest.fixture
async def broker(open_wire_client):
    """A broker that has tokens, and rights, which nobody has at first."""
    return await open_wire_client(delegation_token_secret_key=SECRET_KEY, **SECURE)


async def create(client, *renewers, owner=None, max_lifetime_ms=-1, version=3):
    type_ = None if owner is None else "User"
    users = [CreatableRenewers(principal_type="User", principal_name=name) for name in renewers]
    names = {"owner_principal_type": type_, "owner_principal_name": owner} if version >= 3 else {}
    request = CreateDelegationTokenRequest(renewers=users, max_lifetime_ms=max_lifetime_ms, **names)
    return await client.ask(request, version)


async def renewed(client, token, period_ms=-1):
    response = await client.ask(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=period_ms), 2)
    return response.error_code, response.expiry_timestamp_ms


async def ended(client, token, period_ms=-1):
    response = await client.ask(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms), 2)
    return response.error_code, response.expiry_timestamp_ms


async def described(client, *owners, version=3):
    """The ids of the tokens that the client sees of ``owners``, or of all."""
    named = [DescribeDelegationTokenOwner(principal_type="User", principal_name=name) for name in owners]
    response = await client.ask(DescribeDelegationTokenRequest(owners=named or None), version)
    assert response.error_code == 0
    return {each.token_id for each in response.tokens}


def login(broker: WireClient, token_id: str):
    return find_token_login(broker.services.metadata_cache.image, SECRET_KEY, token_id, broker.clock.now_ms())


@pytest.mark.parametrize("renewers", [["x" * 32_767], [str(number) * 100 for number in range(1000)]])
async def test_names_that_no_record_should_hold_are_refused(broker, renewers):
    alice = attrs.evolve(broker, principal=KafkaPrincipal("User", "alice"))
    assert (await create(alice, *renewers)).error_code == ErrorCode.INVALID_REQUEST
    assert (await create(alice, "rita")).error_code == ErrorCode.NONE


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
async def test_every_version_is_refused_without_a_login_or_after_one_by_a_token(broker, request_):
    by_token = attrs.evolve(broker, principal=KafkaPrincipal("User", "alice", token_authenticated=True))
    versions = type(request_).VERSIONS
    for version in range(versions.low, versions.high + 1):
        for client in (broker, by_token):
            assert (await client.ask(request_, version)).error_code == NOT_ALLOWED


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda request: type(request).__name__)
async def test_there_are_none_without_a_secret_key(wire, request_):
    response = await wire.as_user("alice").ask(request_, 2)
    assert response.error_code == ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


async def test_a_token_is_its_creators_for_a_day_and_can_be_prolonged_to_seven(broker):
    now_ms = broker.clock.now_ms()
    for version in (1, 2, 3):
        token = await create(broker.as_user("alice"), version=version)
        assert (token.error_code, token.principal_name) == (0, "alice")
        times = token.issue_timestamp_ms, token.expiry_timestamp_ms, token.max_timestamp_ms
        assert times == (now_ms, now_ms + DAY_MS, now_ms + 7 * DAY_MS)
    assert token.token_requester_principal_name == "alice"
    short = await create(broker.as_user("alice"), max_lifetime_ms=HOUR_MS)
    assert (short.expiry_timestamp_ms, short.max_timestamp_ms) == (now_ms + HOUR_MS, now_ms + HOUR_MS)
    found = login(broker, token.token_id)
    assert (found.owner, found.expires_at_ms) == ("alice", now_ms + DAY_MS)
    assert found.password not in repr(found)


async def test_no_secret_is_in_the_metadata(broker):
    token = await create(broker.as_user("alice"))
    assert len(token.hmac) == 64
    record = token_records(broker.services.metadata_cache.image)[token.token_id]
    assert bytes(token.hmac) not in encode_bytes(record, 0)
    password = b64encode(token.hmac).decode()
    assert password == login(broker, token.token_id).password
    assert password not in repr(record)


def test_a_secret_is_that_which_kafka_computes():
    """By its DelegationTokenManager, so that tokens that have moved from there stay valid."""
    known = "IYo4gZkW4NKJkSOkkvUEdGAGYI4DgI4lB43Ki/edC9fbRB19WB8AfWsvcdlE8zhzm78PC6Dixy62iq/Wl6Qp4Q=="
    assert b64encode(token_hmac("of the cluster", "VqL_fztJQmuePuV6csuWPA")).decode() == known


async def test_a_token_of_another_owner_takes_the_right_to_create_it(broker):
    alice = broker.as_user("alice")
    refused = await create(alice, owner="bob")
    assert refused.error_code == ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
    assert (refused.principal_name, refused.token_requester_principal_name, refused.hmac) == ("bob", "alice", b"")
    await allow(broker, entry("User:bob", AclOperation.CREATE_TOKENS, type_=ResourceType.USER))
    token = await create(alice, owner="bob")
    assert (token.principal_name, token.token_requester_principal_name) == ("bob", "alice")
    assert login(broker, token.token_id).owner == "bob"
    assert await described(alice) == await described(broker.as_user("bob")) == {token.token_id}
    assert (await renewed(alice, token))[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert (await renewed(broker.as_user("bob"), token))[0] == 0


async def test_owners_and_renewers_are_users(broker):
    alice = broker.as_user("alice")
    group = CreatableRenewers(principal_type="Group", principal_name="all")
    response = await alice.ask(CreateDelegationTokenRequest(renewers=[group], max_lifetime_ms=-1), 2)
    assert response.error_code == ErrorCode.INVALID_PRINCIPAL_TYPE


async def test_a_token_is_seen_by_those_that_it_concerns_or_that_have_a_right(broker):
    token = await create(broker.as_user("alice"), "rita")
    other = await create(broker.as_user("bob"))
    both = {token.token_id, other.token_id}
    eve = broker.as_user("eve")
    for version in (1, 2, 3):
        assert await described(broker.as_user("alice"), version=version) == {token.token_id}
    assert await described(broker.as_user("rita")) == {token.token_id}
    assert await described(eve) == set()
    await allow(
        broker, entry(token.token_id, AclOperation.DESCRIBE, type_=ResourceType.DELEGATION_TOKEN, principal="User:eve")
    )
    assert await described(eve) == {token.token_id}
    await allow(broker, entry("User:bob", AclOperation.DESCRIBE_TOKENS, type_=ResourceType.USER, principal="User:eve"))
    assert await described(eve) == await described(eve, "alice", "bob") == both
    assert await described(eve, "bob") == {other.token_id}


async def test_without_an_authorizer_each_user_sees_all(open_wire_client):
    open_to_all = await open_wire_client(delegation_token_secret_key=SECRET_KEY)
    token = await create(open_to_all.as_user("alice"))
    assert await described(open_to_all.as_user("eve")) == {token.token_id}


async def test_owner_and_renewers_prolong_a_token_until_it_is_over(broker):
    token = await create(broker.as_user("alice"), "rita")
    rita, now_ms = broker.as_user("rita"), broker.clock.now_ms()
    assert await renewed(rita, token, HOUR_MS) == (0, now_ms + HOUR_MS)
    assert await renewed(rita, token, 3 * DAY_MS) == (0, now_ms + DAY_MS)
    assert (await renewed(broker.as_user("eve"), token))[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    for _ in range(7):
        broker.clock.advance(DAY_MS / 1000)
        assert await renewed(rita, token) == (0, min(broker.clock.now_ms(), now_ms + 6 * DAY_MS) + DAY_MS)
    broker.clock.advance(0.001)
    assert (await renewed(rita, token))[0] == ErrorCode.DELEGATION_TOKEN_EXPIRED
    assert login(broker, token.token_id) is None


async def test_a_token_ends_at_once_or_later(broker):
    alice, now_ms = broker.as_user("alice"), broker.clock.now_ms()
    token = await create(alice)
    assert (await ended(broker.as_user("eve"), token))[0] == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    assert await ended(alice, token, HOUR_MS) == (0, now_ms + HOUR_MS)
    assert await ended(alice, token) == (0, now_ms)
    assert login(broker, token.token_id) is None
    assert (await ended(alice, token))[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND


async def test_the_controller_removes_tokens_that_are_over(broker):
    alice = broker.as_user("alice")
    await create(alice, max_lifetime_ms=HOUR_MS)
    kept = await create(alice)
    broker.clock.advance(HOUR_MS / 1000 + 0.001)
    await broker.services.controller.remove_expired_delegation_tokens()
    # Nobody waits until the broker follows a removal; it has done so when it follows what comes behind.
    new = await create(alice)
    assert await described(alice) == {kept.token_id, new.token_id}


async def test_who_has_no_rights_cannot_fill_the_metadata_with_tokens(broker, monkeypatch):
    monkeypatch.setattr("trio_broker.cluster.delegation_token_control.MAX_TOKENS", 2)
    alice = broker.as_user("alice")
    tokens = [await create(alice, max_lifetime_ms=HOUR_MS) for _ in range(2)]
    assert (await create(alice)).error_code == ErrorCode.POLICY_VIOLATION
    assert (await create(broker.as_user("bob"))).error_code == 0
    assert (await ended(alice, tokens[0]))[0] == 0
    assert (await create(alice)).error_code == 0
