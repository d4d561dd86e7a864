"""Access control entries of a cluster.

Source: Kafka's DescribeAcls, CreateAcls and DeleteAcls APIs; KIP-140.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.messages.create_acls import AclCreation, CreateAclsRequest
from kafka_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from kafka_wire.messages.describe_acls import DescribeAclsRequest
from trio_broker.client.errors import NotKafka, Refused, check
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.security.standard_acl import StandardAcl


def describe_acls(client: KafkaClient, principal: str | None = None) -> list[StandardAcl]:
    """Return the entries about a principal, or all of them.

    Raises:
        Refused: they may not be seen, or there is no authorizer (SECURITY_DISABLED).
    """
    request = DescribeAclsRequest(
        resource_type_filter=ResourceType.ANY,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=principal,
        host_filter=None,
        operation=AclOperation.ANY,
        permission_type=AclPermissionType.ANY,
    )

    def ask() -> list[StandardAcl]:
        response = client.ask(client.any_broker(), request)
        check("entries", response.error_code, response.error_message)
        return [
            StandardAcl(
                ResourceType(about.resource_type),
                about.resource_name,
                PatternType(about.pattern_type),
                each.principal,
                each.host,
                AclOperation(each.operation),
                AclPermissionType(each.permission_type),
            )
            for about in response.resources
            for each in about.acls
        ]

    return client.attempt(ask)


def create_acls(client: KafkaClient, acls: Sequence[StandardAcl]) -> dict[StandardAcl, Refused | None]:
    """Create each entry that there is not yet; return each one's error, or None.

    Raises:
        ClientError: the request as a whole has failed.
    """
    creations = [
        AclCreation(
            resource_type=each.resource_type,
            resource_name=each.resource_name,
            resource_pattern_type=each.pattern_type,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for each in acls
    ]
    request = CreateAclsRequest(creations=creations)
    results = client.attempt(lambda: client.ask(client.controller(), request)).results
    if len(results) != len(acls):
        raise NotKafka(f"the answer has results for {len(results)} entries instead of {len(acls)}")
    return {
        acl: Refused(f"{acl}", each.error_code, each.error_message) if each.error_code else None
        for acl, each in zip(acls, results, strict=True)
    }


def delete_acls(client: KafkaClient, acls: Collection[StandardAcl]) -> None:
    """Remove these entries; one that is gone is no error.

    Raises:
        Refused: one may not be removed.
    """
    filters = [
        DeleteAclsFilter(
            resource_type_filter=each.resource_type,
            resource_name_filter=each.resource_name,
            pattern_type_filter=each.pattern_type,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission_type,
        )
        for each in acls
    ]
    for result in client.attempt(
        lambda: client.ask(client.controller(), DeleteAclsRequest(filters=filters))
    ).filter_results:
        check("entries", result.error_code, result.error_message)
        for each in result.matching_acls:
            check("entry", each.error_code, each.error_message)
