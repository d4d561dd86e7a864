"""Decides about access control entries: which may be created, which a filter removes, and the records to write.

Source: Kafka's AclControlManager, AclApis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from kafka_wire.acl import CLUSTER_NAME, WILDCARD, AclOperation, AclPermissionType, PatternType, ResourceType
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.stored.metadata import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from trio_broker.cluster.controller_result import ControllerResult, attempt
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.concurrency.steps import Steps
from trio_broker.concurrency.yield_budget import YieldBudget, clear_in_turns, count_in_turns, list_in_turns
from trio_broker.runtime.randomness import Random, random_uuid
from trio_broker.security.standard_acl import AclFilter, StandardAcl, parse_network

MAX_RECORDS_PER_USER_OP: Final = 10_000
"""Entries that one request may create, or remove."""


def acl_of(record: AccessControlEntryRecord) -> StandardAcl:
    """The entry that a record creates."""
    return StandardAcl(
        resource_type=ResourceType(record.resource_type),
        resource_name=record.resource_name,
        pattern_type=PatternType(record.pattern_type),
        principal=record.principal,
        host=record.host,
        operation=AclOperation(record.operation),
        permission_type=AclPermissionType(record.permission_type),
    )


def acl_records(image: MetadataImage) -> Mapping[bytes, AccessControlEntryRecord]:
    """The entries of the cluster, by their ids."""
    return image.records_of(AccessControlEntryRecord)


def decide_new_acls(
    image: MetadataImage, acls: Sequence[StandardAcl], random: Random
) -> Steps[list[ControllerResult[StandardAcl] | KafkaError]]:
    """Create each entry, unless there is one that says the same, which is no error.

    Raises:
        KafkaError: INVALID_REQUEST: they are too many.
    """
    if len(acls) > MAX_RECORDS_PER_USER_OP:
        raise KafkaError(f"more than {MAX_RECORDS_PER_USER_OP} entries at once", code=ErrorCode.INVALID_REQUEST)
    existing = yield from count_in_turns(acl_of(record) for record in acl_records(image).values())

    def decide(acl: StandardAcl) -> ControllerResult[StandardAcl]:
        require_valid(acl)
        if acl in existing:
            return ControllerResult(acl, ())
        existing[acl] = 1
        record = AccessControlEntryRecord(
            id=random_uuid(random),
            resource_type=acl.resource_type,
            resource_name=acl.resource_name,
            pattern_type=acl.pattern_type,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission_type,
        )
        return ControllerResult(acl, (record,))

    decisions = yield from list_in_turns(attempt(partial(decide, acl)) for acl in acls)
    yield from clear_in_turns(existing)
    return decisions


def decide_acl_deletions(
    image: MetadataImage, filters: Sequence[AclFilter]
) -> Steps[list[ControllerResult[Sequence[StandardAcl]] | KafkaError]]:
    """Remove the entries that each filter matches; an entry that two of them match is in the outcome of both."""
    decisions: list[ControllerResult[Sequence[StandardAcl]] | KafkaError] = []
    removed: set[bytes] = set()
    matched = 0
    budget = YieldBudget()
    for wanted in filters:
        if budget.is_spent:
            yield budget.renewed
        if wanted.has_unknown:
            decisions.append(KafkaError("Unknown patternFilter or entryFilter.", code=ErrorCode.INVALID_REQUEST))
            continue
        matching: list[tuple[bytes, StandardAcl]] = []
        for acl_id, record in acl_records(image).items():
            if wanted.matches(acl := acl_of(record)):
                matching.append((acl_id, acl))
            if budget.is_spent:
                yield budget.renewed
        # Those that are matched again count as well: a few bytes would ask for all of them once more.
        matched += len(matching)
        if matched > MAX_RECORDS_PER_USER_OP:
            text = f"Cannot remove more than {MAX_RECORDS_PER_USER_OP} acls in a single delete operation."
            decisions.append(KafkaError(text, code=ErrorCode.INVALID_REQUEST))
            matched -= len(matching)
            continue
        new = [acl_id for acl_id, _ in matching if acl_id not in removed]
        removed.update(new)
        records = tuple(RemoveAccessControlEntryRecord(id=acl_id) for acl_id in new)
        decisions.append(ControllerResult(tuple(acl for _, acl in matching), records))
    return decisions


def require_valid(acl: StandardAcl) -> None:
    """Refuse an entry that could never count, or that is not known what it says.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    reason = ""
    if acl.resource_type is ResourceType.CLUSTER and acl.resource_name != CLUSTER_NAME:
        reason = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not acl.resource_name:
        reason = "Invalid empty resource name"
    elif acl.resource_type in (ResourceType.UNKNOWN, ResourceType.ANY):
        reason = f"Invalid resourceType {acl.resource_type.name}"
    elif acl.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        reason = f"Invalid patternType {acl.pattern_type.name}"
    elif acl.operation in (AclOperation.UNKNOWN, AclOperation.ANY):
        reason = f"Invalid operation {acl.operation.name}"
    elif acl.permission_type not in (AclPermissionType.DENY, AclPermissionType.ALLOW):
        reason = f"Invalid permissionType {acl.permission_type.name}"
    elif not all(acl.principal.partition(":")[::2]):
        reason = "Could not parse principal from the entry: expected Type:name"
    elif not acl.host:
        reason = "Host pattern cannot be null or empty"
    elif acl.host != WILDCARD and "/" in acl.host and parse_network(acl.host) is None:
        reason = f"Invalid CIDR host pattern {acl.host}"
    if reason:
        raise KafkaError(reason, code=ErrorCode.INVALID_REQUEST)
