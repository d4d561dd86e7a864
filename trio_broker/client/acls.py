"""Access control entries of a cluster: which there are, and which come and go.

Source: Kafka's AclBindingFilter, and its DescribeAcls, CreateAcls and DeleteAcls APIs; KIP-140, KIP-290.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kafka_wire.acl import AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.messages.create_acls import CreateAclsRequest
from kafka_wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsRequest
from kafka_wire.messages.describe_acls import DescribeAclsRequest
from trio_broker.client.errors import NotKafka, Refused, check
from trio_broker.client.kafka_client import KafkaClient
from trio_broker.security.new_acls import acl_creation
from trio_broker.security.standard_acl import StandardAcl

Outcomes = dict[StandardAcl, Refused | None]
"""What each entry of a request was refused with; None where it was not."""


@attrs.frozen
class AclBindingFilter:
    """Which entries are meant. ``None`` and the members ``ANY`` match every value."""

    resource_type: ResourceType = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: AclOperation = AclOperation.ANY
    permission_type: AclPermissionType = AclPermissionType.ANY


def describe_acls(client: KafkaClient, wanted: AclBindingFilter) -> list[StandardAcl]:
    """Return the entries that a filter matches, in the order of their resources.

    Raises:
        Refused: the broker has no authorizer (SECURITY_DISABLED), or the caller may not describe the cluster.
    """
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.resource_name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission_type,
    )

    def ask() -> list[StandardAcl]:
        response = client.ask(client.any_broker(), request)
        check("access control entries", response.error_code, response.error_message)
        return sorted(
            StandardAcl(
                ResourceType(resource.resource_type),
                resource.resource_name,
                PatternType(resource.pattern_type),
                acl.principal,
                acl.host,
                AclOperation(acl.operation),
                AclPermissionType(acl.permission_type),
            )
            for resource in response.resources
            for acl in resource.acls
        )

    return client.attempt(ask)


def create_acls(client: KafkaClient, acls: Sequence[StandardAcl]) -> Outcomes:
    """Create each entry that there is not yet.

    Raises:
        ClientError: the request failed as a whole.
    """
    request = CreateAclsRequest(creations=list(map(acl_creation, acls)))

    def ask() -> Outcomes:
        results = client.ask(client.any_broker(), request).results
        return _outcomes(acls, [(result.error_code, result.error_message) for result in results])

    return client.attempt(ask)


def delete_acls(client: KafkaClient, acls: Sequence[StandardAcl]) -> Outcomes:
    """Remove each of these entries that there still is.

    Raises:
        ClientError: the request failed as a whole.
    """
    filters = [
        DeleteAclsFilter(
            resource_type_filter=acl.resource_type,
            resource_name_filter=acl.resource_name,
            pattern_type_filter=acl.pattern_type,
            principal_filter=acl.principal,
            host_filter=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        for acl in acls
    ]

    def ask() -> Outcomes:
        results = client.ask(client.any_broker(), DeleteAclsRequest(filters=filters)).filter_results
        return _outcomes(acls, list(map(_error_of, results)))

    return client.attempt(ask)


def _error_of(result: DeleteAclsFilterResult) -> tuple[int, str | None]:
    """Return the error of a filter, or else of the one entry that it matches."""
    errors = [(result.error_code, result.error_message)]
    errors += [(each.error_code, each.error_message) for each in result.matching_acls]
    return next((each for each in errors if each[0]), errors[0])


def _outcomes(acls: Sequence[StandardAcl], errors: Sequence[tuple[int, str | None]]) -> Outcomes:
    if len(errors) != len(acls):
        raise NotKafka(f"the answer has results for {len(errors)} entries instead of {len(acls)}")
    return {
        acl: Refused(str(acl), code, message) if code else None
        for acl, (code, message) in zip(acls, errors, strict=True)
    }
