"""CreateAcls, DescribeAcls and DeleteAcls, as tools use them together; and each where there is no authorizer."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from kafka_wire.acl import CLUSTER_NAME, AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.create_acls import CreateAclsRequest
from kafka_wire.messages.delete_acls import DeleteAclsRequest
from kafka_wire.messages.describe_acls import DescribeAclsRequest
from tests.handlers.acls import ADMIN, SECURE, allow, entry, matching, revoke
from trio_broker.changes.change import ChangeAction, ChangedResource

READ, WRITE = AclOperation.READ, AclOperation.WRITE
INVALID, DENIED = ErrorCode.INVALID_REQUEST, ErrorCode.CLUSTER_AUTHORIZATION_FAILED
CLUSTER = ResourceType.CLUSTER


@pytest.fixture
async def broker(open_wire_client):
    return await open_wire_client(**SECURE)


@pytest.fixture
def admin(broker):
    return broker.as_user(ADMIN)


async def described(client, version=3, **fields):
    """The entries that a filter matches, as their resource's name and their operation; or the error."""
    asked: Any = matching(**fields)
    request = DescribeAclsRequest(**attrs.asdict(asked))
    response = await client.ask(request, version)
    if response.error_code:
        return response.error_code
    return sorted((each.resource_name, acl.operation) for each in response.resources for acl in each.acls)


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_entries_are_created_once_listed_and_deleted_by_filters(admin, version):
    creations = [entry(), entry(operation=WRITE), entry(), entry("pay", resource_pattern_type=PatternType.PREFIXED)]
    for _ in range(2):
        response = await admin.ask(CreateAclsRequest(creations=creations), version)
        assert [each.error_code for each in response.results] == [0, 0, 0, 0]
    assert await described(admin, version) == [("orders", READ), ("orders", WRITE), ("pay", READ)]
    assert await described(admin, version, resource_name_filter="payments", pattern_type_filter=PatternType.MATCH) == [
        ("pay", READ)
    ]
    filters = [matching(operation=WRITE), matching(resource_name_filter="orders"), matching(host_filter="1.1.1.1")]
    response = await admin.ask(DeleteAclsRequest(filters=filters), version)
    removed = [[(each.resource_name, each.operation) for each in one.matching_acls] for one in response.filter_results]
    assert removed == [[("orders", WRITE)], [("orders", READ), ("orders", WRITE)], []]
    assert await described(admin, version) == [("pay", READ)]


async def test_each_entry_that_could_never_count_is_refused_alone(admin):
    bad = [
        entry(""),
        entry("c", type_=CLUSTER),
        entry(type_=ResourceType.ANY),
        entry(type_=ResourceType.UNKNOWN),
        entry(resource_pattern_type=PatternType.MATCH),
        entry(operation=AclOperation.ANY),
        entry(permission=AclPermissionType.ANY),
        entry(principal="alice"),
        entry(host=""),
        entry(host="10.0.0.0/33"),
        entry(host="10.0.0/8"),
    ]
    response = await admin.ask(CreateAclsRequest(creations=[*bad, entry(host="10.0.0.0/8")]), 3)
    assert [each.error_code for each in response.results] == [INVALID] * len(bad) + [0]
    assert await described(admin) == [("orders", READ)]


async def test_a_filter_of_what_is_not_known_is_refused(admin):
    await allow(admin, entry())
    response = await admin.ask(DeleteAclsRequest(filters=[matching(operation=99), matching()]), 3)
    assert [(each.error_code, len(each.matching_acls)) for each in response.filter_results] == [(INVALID, 0), (0, 1)]
    assert await described(admin, operation=99) == INVALID


async def test_too_many_at_once_are_refused_as_a_whole(admin, monkeypatch):
    monkeypatch.setattr("trio_broker.cluster.acl_control.MAX_RECORDS_PER_USER_OP", 2)
    response = await admin.ask(CreateAclsRequest(creations=[entry(name) for name in "abc"]), 3)
    assert [each.error_code for each in response.results] == [INVALID] * 3
    await allow(admin, entry("a"), entry("b"))
    await allow(admin, entry("c"))
    response = await admin.ask(DeleteAclsRequest(filters=[matching()]), 3)
    assert response.filter_results[0].error_code == INVALID
    assert len(await described(admin)) == 3
    again = [matching(resource_name_filter="a")] * 3
    response = await admin.ask(DeleteAclsRequest(filters=again), 3)
    assert [each.error_code for each in response.filter_results] == [0, 0, INVALID]


async def test_only_who_may_alter_the_cluster_may_alter_entries(broker, admin):
    alice = broker.as_user("alice")
    refused = await alice.ask(CreateAclsRequest(creations=[entry(), entry()]), 3)
    assert [each.error_code for each in refused.results] == [DENIED, DENIED]
    refused = await alice.ask(DeleteAclsRequest(filters=[matching()]), 3)
    assert [each.error_code for each in refused.filter_results] == [DENIED]
    assert await described(alice) == DENIED
    await allow(admin, entry(CLUSTER_NAME, AclOperation.DESCRIBE, type_=CLUSTER))
    assert await described(alice) == [(CLUSTER_NAME, AclOperation.DESCRIBE)]


async def test_entries_outlive_a_restart_and_are_kept_as_changes_with_their_maker(open_wire_client):
    broker = await open_wire_client(**SECURE)
    await allow(broker, entry(), entry(operation=WRITE))
    await revoke(broker, operation=WRITE)
    made = [each for each in broker.services.changes.changes if each.resource_type is ChangedResource.ACL]
    kept = "ALLOW User:alice from * READ on TOPIC:LITERAL:orders"
    assert {(each.action, each.resource, each.origin.principal) for each in made} == {
        (ChangeAction.CREATED, kept, "User:admin"),
        (ChangeAction.CREATED, kept.replace("READ", "WRITE"), "User:admin"),
        (ChangeAction.DELETED, kept.replace("READ", "WRITE"), "User:admin"),
    }


NO_AUTHORIZER = "No Authorizer is configured"


@pytest.mark.parametrize("version", [1, 2, 3])
async def test_without_an_authorizer_every_entry_is_refused(wire, version):
    response = await wire.ask(CreateAclsRequest(creations=[entry(), entry()]), version)
    reported = [(item.error_code, item.error_message) for item in response.results]
    assert reported == [(ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.")] * 2
    deleted = await wire.ask(DeleteAclsRequest(filters=[matching(), matching()]), version)
    refused = [(item.error_code, item.error_message, item.matching_acls) for item in deleted.filter_results]
    assert refused == [(ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.", [])] * 2
    assert await described(wire, version) == ErrorCode.SECURITY_DISABLED
