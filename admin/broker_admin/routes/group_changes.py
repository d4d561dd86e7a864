"""``/api/v1/groups/{group_id}``: what changes a group. Offsets are reset or deleted, static members removed, groups
deleted.

Each takes ``dry_run=true``, which refuses for the same reasons and answers with what would be done. Ids that a path
cannot carry go into the query, as ``groups.py`` says. A group with members is refused with 409: they keep their own
positions, and their next commit would replace the new offsets.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import attrs
from starlette.endpoints import HTTPEndpoint
from starlette.requests import Request
from starlette.responses import Response

from broker_admin.app_state import cluster_of
from broker_admin.operations import operation, query_of
from broker_admin.problems import OF_A_VALUE, FieldError, Problem, body_pointer, query_pointer, status_of
from broker_admin.request_body import ChangeQuery, caller_name, check_caller, read_change
from broker_admin.requirements import in_handler, is_judged, of_group, require, requires
from broker_admin.responses import json_response, json_response_from_thread
from broker_admin.routes.groups import get_group, get_offsets
from broker_admin.routing import GroupRoute, Route, group_id_of
from broker_admin.schemas import PartitionNumber, bounded
from broker_admin.tokens import Role
from broker_admin.views.cluster.group_changes import (
    DeletedGroup,
    DeletedOffsets,
    GroupRefused,
    OffsetReset,
    RemovedMember,
    ResetOffsets,
    ResetScope,
    ResetTarget,
)
from kafka_wire.limits import MAX_OFFSET, MAX_STRING_BYTES
from trio_broker.handlers.support.rights import DELETE_GROUP, DESCRIBE_GROUP, READ_GROUP, READ_TOPIC

MAX_SCOPES = 1000
"""Topics named in one change; without any it is about all of the group's."""

MAX_SCOPE_PARTITIONS = 10_000

MAX_FILE_CHARACTERS = 1 << 20
"""Of a file of offsets: ten thousand partitions with long names."""

MAX_RESET_BYTES = 2 * MAX_FILE_CHARACTERS
"""Of the body of a reset: the file, and its escapes in JSON."""

MAX_TIME_CHARACTERS = 100

PROBLEMS: Mapping[int, str] = {
    404: "there is no such group, or no such member of it",
    409: "the group has members; nothing was changed",
    422: "a value is refused; nothing was changed",
    503: "the group cannot be changed now",
}

VALUE_TARGETS = (
    ResetTarget.OFFSET,
    ResetTarget.SHIFT_BY,
    ResetTarget.TIME,
    ResetTarget.DURATION,
    ResetTarget.GROUP,
    ResetTarget.FILE,
)
"""The targets that need the value of their name."""


@attrs.frozen(kw_only=True)
class ResetScopeBody:
    """A topic, or those of its ``partitions`` that are named."""

    topic: str = bounded(maxLength=MAX_STRING_BYTES)
    partitions: tuple[PartitionNumber, ...] | None = bounded(None, minItems=1, maxItems=MAX_SCOPE_PARTITIONS)


@attrs.frozen(kw_only=True)
class OffsetResetBody:
    """What a reset is to do; see ``OffsetReset``. A target named like a value needs that value and takes no other."""

    target: ResetTarget
    topics: tuple[ResetScopeBody, ...] = bounded((), maxItems=MAX_SCOPES)
    offset: int | None = bounded(None, minimum=0, maximum=MAX_OFFSET)
    shift_by: int | None = bounded(None, minimum=-MAX_OFFSET, maximum=MAX_OFFSET)
    time: str | None = bounded(None, maxLength=MAX_TIME_CHARACTERS)
    duration: str | None = bounded(None, maxLength=MAX_TIME_CHARACTERS)
    group: str | None = bounded(None, maxLength=MAX_STRING_BYTES)
    file: str | None = bounded(None, maxLength=MAX_FILE_CHARACTERS)

    def reset(self) -> OffsetReset:
        """The change that this asks for.

        Raises:
            Problem: 422, the target lacks its value, or a value is of another target.
        """
        given = {target: getattr(self, target.value) for target in VALUE_TARGETS}
        errors = []
        if self.target in given and given[self.target] is None:
            name = self.target.value
            errors.append(FieldError(body_pointer(name), f"{name} is missing; the target {name} needs it"))
        for target, value in given.items():
            if value is not None and target is not self.target:
                reason = f"only the target {target.value} takes {target.value}"
                errors.append(FieldError(body_pointer(target.value), reason))
        if self.target is ResetTarget.FILE and self.topics:
            errors.append(FieldError(body_pointer("topics"), "the file names the partitions: leave out topics"))
        if errors:
            raise Problem.of_errors(422, errors)
        scopes = tuple(ResetScope(topic=each.topic, partitions=each.partitions) for each in self.topics)
        return OffsetReset(
            target=self.target, topics=scopes, **{target.value: value for target, value in given.items()}
        )


@attrs.frozen
class GroupChangeQuery(ChangeQuery):
    """The query of a change of a group, with its id where no path can carry it."""

    id: str | None = None


@attrs.frozen
class OffsetDeletionQuery(GroupChangeQuery):
    """Which offsets are deleted: of all topics, of those named, or of the partitions named of one topic."""

    topic: tuple[str, ...] = bounded((), maxItems=MAX_SCOPES)
    partition: tuple[PartitionNumber, ...] = bounded((), maxItems=MAX_SCOPE_PARTITIONS)

    def scopes(self) -> list[ResetScope]:
        """The partitions that are meant.

        Raises:
            Problem: 400, partitions are named without the one topic that they are of.
        """
        if self.partition and len(self.topic) != 1:
            reason = "partition is given with exactly one topic"
            raise Problem(400, reason, [FieldError(query_pointer("partition"), reason)])
        return [ResetScope(topic=topic, partitions=self.partition or None) for topic in self.topic]


@attrs.frozen
class MemberRemovalQuery(GroupChangeQuery):
    """The query of a removal; ``group_instance_id`` is for ids that no path can carry."""

    group_instance_id: str | None = None


def problem_of(refused: GroupRefused) -> Problem:
    """A refusal of the broker, with a pointer to what it is about."""
    errors = [FieldError(body_pointer(*refused.field), refused.reason)] if refused.field else []
    # A topic is a value of these requests, and no part of their addresses.
    is_value = refused.error == "UNKNOWN_TOPIC_OR_PARTITION"
    return Problem(OF_A_VALUE if is_value else status_of(refused.error), refused.reason, errors)


def require_readable(request: Request, topics: Iterable[str]) -> None:
    """Refuse a change of offsets in topics that the caller may not read, as Kafka does.

    Raises:
        Problem: 403.
    """
    for topic in dict.fromkeys(topics):
        require(request, READ_TOPIC, topic)


@requires(
    Role.OPERATOR,
    of_group(READ_GROUP),
    in_handler(DESCRIBE_GROUP, note="another's offsets"),
    in_handler(READ_TOPIC),
)
@operation(
    ResetOffsets, query=GroupChangeQuery, body=OffsetResetBody, is_change=True,
    problems={status: PROBLEMS[status] for status in (409, 422, 503)},
)  # fmt: skip
async def reset_offsets(request: Request) -> Response:
    """Set the offsets from which a group without members continues.

    The answer has the old and the new offset of each partition, and how many records are skipped or read again. Offsets
    outside of a log are moved into it. A group that does not exist is created.
    """
    query = query_of(request, GroupChangeQuery)
    reset = (await read_change(request, OffsetResetBody, MAX_RESET_BYTES)).reset()
    group_id, changes = group_id_of(request), cluster_of(request).group_changes
    if reset.group is not None:
        require(request, DESCRIBE_GROUP, reset.group)
    try:
        if is_judged(request):
            planned = await changes.reset_offsets(group_id, reset, dry_run=True)
            require_readable(request, (each.topic for each in planned.partitions))
        done = await changes.reset_offsets(group_id, reset, dry_run=query.dry_run)
    except GroupRefused as refused:
        raise problem_of(refused) from refused
    return await json_response_from_thread(done)


class GroupEndpoint(HTTPEndpoint):
    """One group."""

    get = staticmethod(get_group)

    @requires(Role.OPERATOR, of_group(DELETE_GROUP))
    @operation(DeletedGroup, query=GroupChangeQuery, is_change=True, problems=PROBLEMS)
    async def delete(self, request: Request) -> Response:
        """Delete a group without members, with its offsets."""
        check_caller(request)
        query = query_of(request, GroupChangeQuery)
        try:
            deleted = await cluster_of(request).group_changes.delete(group_id_of(request), dry_run=query.dry_run)
        except GroupRefused as refused:
            raise problem_of(refused) from refused
        return json_response(deleted)


class GroupOffsetsEndpoint(HTTPEndpoint):
    """The committed offsets of a group."""

    get = staticmethod(get_offsets)

    @requires(Role.OPERATOR, of_group(DELETE_GROUP), in_handler(READ_TOPIC))
    @operation(DeletedOffsets, query=OffsetDeletionQuery, is_change=True, problems=PROBLEMS)
    async def delete(self, request: Request) -> Response:
        """Delete committed offsets: all, those of ``topic``s, or of the ``partition``s of one topic.

        Offsets of topics that a member is subscribed to are kept, with an error for each of their partitions.
        """
        check_caller(request)
        query = query_of(request, OffsetDeletionQuery)
        group_id, scopes, changes = group_id_of(request), query.scopes(), cluster_of(request).group_changes
        try:
            if is_judged(request):
                planned = await changes.delete_offsets(group_id, scopes, dry_run=True)
                require_readable(request, (each.topic for each in planned.partitions))
            deleted = await changes.delete_offsets(group_id, scopes, dry_run=query.dry_run)
        except GroupRefused as refused:
            raise problem_of(refused) from refused
        return await json_response_from_thread(deleted)


@requires(Role.OPERATOR, of_group(READ_GROUP))
@operation(RemovedMember, query=MemberRemovalQuery, is_change=True, problems=PROBLEMS)
async def remove_member(request: Request) -> Response:
    """Remove the static member with a group instance id, before its session times out; the group rebalances.

    A member that still runs is fenced: its next request gets UNKNOWN_MEMBER_ID.
    """
    check_caller(request)
    query = query_of(request, MemberRemovalQuery)
    group_instance_id = query.group_instance_id
    if group_instance_id is None:
        group_instance_id = str(request.path_params["group_instance_id"])
    try:
        removed = await cluster_of(request).group_changes.remove_static_member(
            group_id_of(request), group_instance_id, dry_run=query.dry_run, changed_by=caller_name(request)
        )
    except GroupRefused as refused:
        raise problem_of(refused) from refused
    return json_response(removed)


ROUTES: list[Route] = [
    GroupRoute("/api/v1/groups/{group_id}:reset-offsets", reset_offsets, methods=["POST"]),
    GroupRoute("/api/v1/groups/{group_id}", GroupEndpoint),
    GroupRoute("/api/v1/groups/{group_id}/offsets", GroupOffsetsEndpoint),
    GroupRoute("/api/v1/groups/{group_id}/members/{group_instance_id}", remove_member, methods=["DELETE"]),
]
