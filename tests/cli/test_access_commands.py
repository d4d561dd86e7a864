"""``acls`` and ``quotas`` as they are typed."""

from __future__ import annotations

import json
from typing import Any

import attrs

from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages import alter_client_quotas as altered
from kafka_wire.messages import describe_client_quotas as described
from kafka_wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from kafka_wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from kafka_wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from tests.cli.scripted_commands import run
from tests.fakes.scripted_kafka import Cluster, ScriptedKafka
from trio_broker.security.standard_acl import AclFilter, StandardAcl

READ_ORDERS = StandardAcl(
    ResourceType.TOPIC, "orders", PatternType.LITERAL, "User:alice", "*", AclOperation.READ, AclPermissionType.ALLOW
)
ALL_OF_ORD = attrs.evolve(
    READ_ORDERS, resource_name="ord", pattern_type=PatternType.PREFIXED, operation=AclOperation.ALL
)


def numbers(acl: StandardAcl) -> dict[str, Any]:
    return {
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation,
        "permission_type": acl.permission_type,
    }


def wanted(request: Any) -> AclFilter:
    return AclFilter(
        ResourceType(request.resource_type_filter),
        request.resource_name_filter,
        PatternType(request.pattern_type_filter),
        request.principal_filter,
        request.host_filter,
        AclOperation(request.operation),
        AclPermissionType(request.permission_type),
    )


def acl_server(*entries: StandardAcl) -> ScriptedKafka:
    """A broker with entries, which refuses entries about ``forbidden``."""

    def describe(request: DescribeAclsRequest, version: int) -> DescribeAclsResponse:
        found = [
            DescribeAclsResource(
                resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type,
                acls=[AclDescription(**numbers(acl))],
            )
            for acl in entries if wanted(request).matches(acl)
        ]  # fmt: skip
        return DescribeAclsResponse(error_message=None, resources=found)

    def create(request: CreateAclsRequest, version: int) -> CreateAclsResponse:
        refused = AclCreationResult(error_code=ErrorCode.INVALID_REQUEST, error_message="not that one")
        created = AclCreationResult(error_message=None)
        return CreateAclsResponse(
            results=[refused if each.resource_name == "forbidden" else created for each in request.creations]
        )

    def delete(request: DeleteAclsRequest, version: int) -> DeleteAclsResponse:
        matching = [
            DeleteAclsMatchingAcl(
                error_message=None, resource_type=acl.resource_type, resource_name=acl.resource_name,
                pattern_type=acl.pattern_type, **numbers(acl),
            )
            for acl in entries if wanted(request.filters[0]).matches(acl)
        ]  # fmt: skip
        return DeleteAclsResponse(filter_results=[DeleteAclsFilterResult(error_message=None, matching_acls=matching)])

    server = ScriptedKafka({DescribeAclsRequest: describe, CreateAclsRequest: create, DeleteAclsRequest: delete})
    Cluster([server])
    return server


def test_a_name_lists_all_entries_that_count_for_it():
    with acl_server(READ_ORDERS, ALL_OF_ORD, attrs.evolve(READ_ORDERS, resource_name="payments")) as server:
        listed = json.loads(run(server, "acls", "list", "--topic", "orders", "--json").output)
        assert [(each["resource_name"], each["operation"]) for each in listed] == [("ord", "all"), ("orders", "read")]
        assert "payments" in run(server, "acl", "list", "--principal", "User:alice", "--operation", "read").output


def test_entries_are_added_for_each_principal_resource_and_operation():
    with acl_server() as server:
        result = run(
            server, "acls", "add", "--allow", "User:a", "--deny", "User:b", "--topic", "t", "--topic", "forbidden",
            "--operation", "read", "--operation", "alter-configs",
        )  # fmt: skip
        assert result.exit_code == 1
        assert result.output.count("added: ") == 4
        assert "added: DENY User:b from * ALTER_CONFIGS on TOPIC:LITERAL:t\n" in result.output
        assert "LITERAL:forbidden: INVALID_REQUEST: not that one" in result.output
        assert run(server, "acls", "add", "--allow", "User:a", "--topic", "t").exit_code == 2


def test_entries_of_just_a_name_are_removed_once_somebody_agrees():
    with acl_server(READ_ORDERS, ALL_OF_ORD) as server:
        asked = run(server, "acls", "remove", "--topic", "orders")
        assert asked.exit_code == 1
        assert "orders  literal" in asked.output
        assert "nothing was changed" in asked.output
        removed = run(server, "acls", "remove", "--topic", "orders", "--execute")
        assert removed.output == "removed: ALLOW User:alice from * READ on TOPIC:LITERAL:orders\n"
        removed = run(server, "acls", "remove", "--topic", "ord", "--prefixed", "--execute", "--json")
        assert [each["resource_name"] for each in json.loads(removed.output)] == ["ord"]
        assert run(server, "acls", "remove", "--execute").exit_code == 2
        assert "there are no such entries" in run(server, "acls", "remove", "--group", "g", "--execute").output


def quota_server() -> ScriptedKafka:
    """A broker with quotas of Alice, and of a client id of hers."""

    def describe(
        request: described.DescribeClientQuotasRequest, version: int
    ) -> described.DescribeClientQuotasResponse:
        user = described.EntityData(entity_type="user", entity_name="alice")
        client = described.EntityData(entity_type="client-id", entity_name=None)
        value = described.ValueData(key="producer_byte_rate", value=1024.0)
        share = described.ValueData(key="request_percentage", value=12.5)
        entries = [
            described.EntryData(entity=[client, user], values=[share]),
            described.EntryData(entity=[user], values=[value, share]),
        ]
        return described.DescribeClientQuotasResponse(error_message=None, entries=entries)

    def alter(request: altered.AlterClientQuotasRequest, version: int) -> altered.AlterClientQuotasResponse:
        [entry] = request.entries
        result = altered.EntryData(error_message=None, entity=entry.entity)
        return altered.AlterClientQuotasResponse(entries=[result])

    server = ScriptedKafka({described.DescribeClientQuotasRequest: describe, altered.AlterClientQuotasRequest: alter})
    Cluster([server])
    return server


def alterations(server: ScriptedKafka) -> list[tuple[list[Any], list[Any], bool]]:
    """What AlterClientQuotas was asked: the entity, the quotas with their values or None, and whether only to check."""
    return [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            [(op.key, None if op.remove else op.value) for op in entry.ops],
            asked.validate_only,
        )
        for asked in server.requests(altered.AlterClientQuotasRequest)
        for entry in asked.entries
    ]


def test_quotas_are_listed_by_whom_they_are_for():
    with quota_server() as server:
        assert run(server, "quotas", "list").output.splitlines() == [
            "FOR                              QUOTA               VALUE",
            "user 'alice'                     producer_byte_rate  1024",
            "user 'alice'                     request_percentage  12.5",
            "user 'alice', default client-id  request_percentage  12.5",
        ]


def test_quotas_are_set_and_removed():
    with quota_server() as server:
        result = run(server, "quotas", "set", "producer_byte_rate=2048", "--user", "bob", "--client-id", "c")
        assert result.output == "user 'bob', client-id 'c', producer_byte_rate: set to 2048\n"
        assert "would be removed" in run(server, "quotas", "remove", "--user", "alice", "--dry-run").output
        run(server, "quotas", "remove", "request_percentage", "--user", "alice", "--default-client-id")
        assert alterations(server) == [
            ([("user", "bob"), ("client-id", "c")], [("producer_byte_rate", 2048.0)], False),
            ([("user", "alice")], [("producer_byte_rate", None), ("request_percentage", None)], True),
            ([("user", "alice"), ("client-id", None)], [("request_percentage", None)], False),
        ]


def test_what_is_wrong_about_quotas_is_said_and_nothing_is_sent():
    with quota_server() as server:
        for words, reason in (
            (("set", "producer_byte_rate=1"), "say whose quotas"),
            (("set", "producer_byte_rate=x", "--user", "a"), "'x' is no number"),
            (("set", "producer_byte_rate=1", "--ip", "::1", "--default-ip"), "exclude each other"),
            (("remove", "--user", "nobody"), "user 'nobody' has no quota"),
            (("remove", "consumer_byte_rate", "--user", "alice"), "has no consumer_byte_rate, but producer_byte_rate"),
        ):
            result = run(server, "quotas", *words)
            assert result.exit_code != 0
            assert reason in result.output
        assert alterations(server) == []
