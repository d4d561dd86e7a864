"""Changes of groups for the admin app: by the coordinator, with the requests that Kafka's clients send.

A reset is planned by the rules of ``trio-broker groups reset-offsets`` (``offset_reset``), from what the coordinator
and the logs of this broker have, and refused while the group has members: they keep their own positions, and their next
commit would replace the new offsets. The coordinator refuses it too if a member joins in the meantime.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from broker_admin.views.cluster.group_changes import (
    DeletedGroup,
    DeletedOffset,
    DeletedOffsets,
    GroupRefused,
    OffsetReset,
    PartitionReset,
    RemovedMember,
    ResetOffsets,
    ResetScope,
    ResetTarget,
)
from kafka_wire.error_codes import ErrorCode
from kafka_wire.errors import KafkaError
from kafka_wire.isolation_level import IsolationLevel
from kafka_wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from kafka_wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from kafka_wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from kafka_wire.messages.offset_fetch import OffsetFetchRequestGroup
from kafka_wire.schema import Request
from trio_broker.broker_view.cluster.remote_records import RemoteRecords
from trio_broker.common.amounts import counted
from trio_broker.common.iso8601 import parse_duration, parse_moment
from trio_broker.common.log_range import LogRange
from trio_broker.common.offset_reset import (
    FromFile,
    FromGroup,
    PlanError,
    PlannedOffset,
    ShiftBy,
    Target,
    ToCurrent,
    ToEarliest,
    ToLatest,
    ToMoment,
    ToOffset,
    plan,
    read_offsets,
    to_moment,
)
from trio_broker.common.request_phase import ignore_release
from trio_broker.common.topic_partition import TopicPartition
from trio_broker.concurrency.steps import Steps, run_steps
from trio_broker.concurrency.yield_budget import InTurns
from trio_broker.coordinator.group_coordinator import GroupCoordinator
from trio_broker.coordinator.reporting.snapshot import GroupSnapshot
from trio_broker.coordinator.runtime.result import RequestContext
from trio_broker.handlers.list_offsets import find_offset
from trio_broker.handlers.offset_commit import commit_existing
from trio_broker.handlers.offset_delete import delete_existing
from trio_broker.handlers.support.services import BrokerServices

K = TypeVar("K")
R = TypeVar("R")

MAX_CHANGED_PARTITIONS = 10_000
"""Partitions of one change: its answer is about a megabyte, its plan some tens of milliseconds of a thread."""

PARTITIONS_PER_REQUEST = 1000
"""Offsets committed or deleted in one request: about 100 KB of records, well below the smallest ``message.max.bytes``
in use."""

CONTEXT = RequestContext("admin", "", 0)
"""What the coordinator learns of this client. A version decides only about members, and this is none."""


class LiveGroupChangesView:
    """The part of the admin app's view that changes groups."""

    def __init__(self, services: BrokerServices) -> None:
        self.services = services

    # ---- resetting ----

    async def reset_offsets(self, group_id: str, reset: OffsetReset, *, dry_run: bool) -> ResetOffsets:
        group = find_group(self.services.groups, group_id)
        refuse_members(group)
        target = await self._target(group_id, reset)
        committed = await self._committed(group_id)
        partitions = self._partitions(target, reset.topics, committed)
        planned = await self._planned(target, partitions, committed)
        errors: Mapping[TopicPartition, ErrorCode] = {}
        if not dry_run:
            errors = await self._commit(group_id, {each.partition: each.new for each in planned})
        return ResetOffsets(
            dry_run=dry_run,
            group_id=group_id,
            creates_group=group is None,
            skipped_records=sum(each.skipped_records or 0 for each in planned),
            repeated_records=sum(each.repeated_records or 0 for each in planned),
            partitions=tuple(partition_reset(each, errors.get(each.partition)) for each in planned),
        )

    async def _target(self, group_id: str, reset: OffsetReset) -> Target:
        """The target that ``reset`` names; that it has its value was checked before.

        Raises:
            GroupRefused: the value cannot be read, or the other group has no offsets.
        """
        try:
            match reset.target:
                case ResetTarget.EARLIEST:
                    return ToEarliest()
                case ResetTarget.LATEST:
                    return ToLatest()
                case ResetTarget.CURRENT:
                    return ToCurrent()
                case ResetTarget.OFFSET:
                    return ToOffset(reset.offset or 0)
                case ResetTarget.SHIFT_BY:
                    return ShiftBy(reset.shift_by or 0)
                case ResetTarget.TIME:
                    return to_moment(parse_moment(reset.time or ""))
                case ResetTarget.DURATION:
                    return to_moment(self.services.clock.now_ms() - parse_duration(reset.duration or ""))
                case ResetTarget.GROUP:
                    other = reset.group or ""
                    if not (offsets := await self._committed(other)):
                        raise PlanError(f"group {other!r} has no committed offsets")
                    return FromGroup(other, offsets)
                case ResetTarget.FILE:
                    return FromFile(read_offsets((reset.file or "").splitlines(), group_id))
        except (ValueError, PlanError) as error:
            raise GroupRefused(ErrorCode.INVALID_REQUEST.name, str(error), (reset.target.value,)) from None

    def _partitions(
        self, target: Target, scopes: Sequence[ResetScope], committed: Iterable[TopicPartition]
    ) -> set[TopicPartition]:
        """The partitions that a reset is about.

        Raises:
            GroupRefused: there are none or too many.
        """
        if isinstance(target, FromFile):
            partitions = set(target.offsets)
        elif scopes:
            partitions = self._named_partitions(scopes)
        else:
            partitions = set(target.offsets if isinstance(target, FromGroup) else committed)
        if not partitions:
            raise GroupRefused(
                ErrorCode.INVALID_REQUEST.name,
                "the group has no committed offsets to reset; name the topics to set it on",
                ("topics",),
            )
        refuse_too_many(partitions)
        return partitions

    def _named_partitions(self, scopes: Sequence[ResetScope]) -> set[TopicPartition]:
        """The partitions of ``scopes``.

        Raises:
            GroupRefused: a topic or partition does not exist.
        """
        named: set[TopicPartition] = set()
        for index, scope in enumerate(scopes):
            topic = self.services.metadata_cache.image.topics.get(scope.topic)
            if topic is None:
                raise no_such_partition(f"there is no topic {scope.topic!r}", ("topics", index, "topic"))
            for position, number in enumerate(scope.partitions or ()):
                if number not in topic.partitions:
                    reason = f"{scope.topic} has no partition {number}, only 0 to {len(topic.partitions) - 1}"
                    raise no_such_partition(reason, ("topics", index, "partitions", position))
            numbers = topic.partitions if scope.partitions is None else scope.partitions
            named |= {TopicPartition(scope.topic, number) for number in numbers}
        return named

    async def _planned(
        self, target: Target, partitions: Collection[TopicPartition], committed: Mapping[TopicPartition, int]
    ) -> list[PlannedOffset]:
        """The new offset of each partition.

        Raises:
            GroupRefused: a partition does not exist or cannot be read, or no plan can be made.
        """
        replicas = self.services.replicas
        ranges: dict[TopicPartition, LogRange] = {}
        found: dict[TopicPartition, int] = {}
        await self._look_elsewhere(target, partitions, ranges, found)
        async for place in InTurns(sorted(partitions)):
            if place in ranges:
                continue
            try:
                partition = replicas.topic(place.topic).partition(place.partition)
                partition.require_leader()
                if isinstance(target, ToMoment):
                    steps = find_offset(partition, target.timestamp_ms, IsolationLevel.READ_UNCOMMITTED, replicas)
                    found[place] = (await run_steps(steps)).offset
            except KafkaError as error:
                raise GroupRefused(error.code.name, f"{place}: {error}") from error
            ranges[place] = LogRange(partition.log_start_offset, partition.high_watermark)
        try:
            work = partial(plan, target, partitions, committed, ranges, found)
            return await self.services.runtime.workers.run(work)
        except PlanError as error:
            raise GroupRefused(ErrorCode.INVALID_REQUEST.name, str(error)) from error

    async def _look_elsewhere(
        self,
        target: Target,
        partitions: Collection[TopicPartition],
        ranges: dict[TopicPartition, LogRange],
        found: dict[TopicPartition, int],
    ) -> None:
        """Ask other brokers for the ``ranges`` of what they lead, and for what was ``found`` there of a time.

        Raises:
            GroupRefused: one of them does not say it.
        """
        remote = RemoteRecords(self.services)
        for name, places in by_topic(partitions).items():
            elsewhere = remote.led_elsewhere(name, [each.partition for each in places])
            for index, known in (await remote.range_of(elsewhere)).items():
                ranges[TopicPartition(name, index)] = known_or_refused(f"{name}-{index}", known)
            if isinstance(target, ToMoment):
                moments = await remote.offsets_at(elsewhere, target.timestamp_ms)
                for index, offset in moments.items():
                    found[TopicPartition(name, index)] = known_or_refused(f"{name}-{index}", offset)

    async def _commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, ErrorCode]:
        """Commit ``offsets`` as a client that is no member; the errors of those that were refused."""
        errors: dict[TopicPartition, ErrorCode] = {}
        try:
            await self.services.groups.find(group_id)
        except KafkaError as error:
            raise refused(error) from error
        for part in in_parts(offsets):
            request = OffsetCommitRequest(
                group_id=group_id,
                member_id="",
                topics=[
                    OffsetCommitRequestTopic(
                        name=name,
                        partitions=[
                            OffsetCommitRequestPartition(
                                partition_index=each.partition, committed_offset=offsets[each], committed_metadata=""
                            )
                            for each in places
                        ],
                    )
                    for name, places in by_topic(part).items()
                ],
            )
            response = await run_steps(commit_existing(request, self, by_id=False))
            errors |= errors_in(response)
        return errors

    # ---- deleting ----

    async def delete(self, group_id: str, *, dry_run: bool) -> DeletedGroup:
        group = known_group(self.services.groups, group_id)
        refuse_members(group)
        count = self.services.groups.machine(group_id, allow_empty=True).offsets.count_of(group_id)
        [result] = await self.services.groups.delete_groups([group_id], ignore_release, validate_only=dry_run)
        if result.error_code == ErrorCode.NON_EMPTY_GROUP:
            raise not_empty(group)
        if result.error_code:
            raise refused(KafkaError(f"group {group_id!r} was not deleted", code=ErrorCode(result.error_code)))
        return DeletedGroup(dry_run=dry_run, group_id=group_id, committed_offsets=count)

    async def delete_offsets(self, group_id: str, scopes: Sequence[ResetScope], *, dry_run: bool) -> DeletedOffsets:
        group = known_group(self.services.groups, group_id)
        committed = await self._committed(group_id)
        chosen = {place: offset for place, offset in committed.items() if not scopes or is_in(place, scopes)}
        if not chosen:
            reason = f"group {group_id!r} has no committed offsets there; nothing is to be deleted"
            raise GroupRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, reason)
        refuse_too_many(chosen)
        errors = self._undeletable(group, chosen) if dry_run else await self._delete(group, chosen)
        return DeletedOffsets(
            dry_run=dry_run,
            group_id=group_id,
            partitions=tuple(
                DeletedOffset(
                    topic=place.topic,
                    partition=place.partition,
                    committed_offset=offset,
                    error=errors[place].name if place in errors else None,
                )
                for place, offset in sorted(chosen.items())
            ),
        )

    def _undeletable(
        self, group: GroupSnapshot, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The partitions that the coordinator would refuse, because a member is subscribed to their topic.

        Raises:
            GroupRefused: it would refuse all of them.
        """
        coordinated = self.services.groups.machine(group.group_id, allow_empty=True).groups[group.group_id]
        if coordinated.validate_offset_delete():
            raise not_empty(group)
        subscribed = {topic for topic in {place.topic for place in places} if coordinated.is_subscribed_to(topic)}
        return {place: ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC for place in places if place.topic in subscribed}

    async def _delete(
        self, group: GroupSnapshot, places: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """Delete the offsets in ``places``; the errors of those that were refused.

        Raises:
            GroupRefused: all of them were refused.
        """
        errors: dict[TopicPartition, ErrorCode] = {}
        for part in in_parts(places):
            request = OffsetDeleteRequest(
                group_id=group.group_id,
                topics=[
                    OffsetDeleteRequestTopic(
                        name=name,
                        partitions=[OffsetDeleteRequestPartition(partition_index=each.partition) for each in named],
                    )
                    for name, named in by_topic(part).items()
                ],
            )
            try:
                response = await delete_existing(request, self)
            except KafkaError as error:
                raise not_empty(group) if error.code is ErrorCode.NON_EMPTY_GROUP else refused(error) from error
            errors |= errors_in(response)
        return errors

    # ---- members ----

    async def remove_static_member(
        self, group_id: str, group_instance_id: str, *, dry_run: bool, changed_by: str
    ) -> RemovedMember:
        group = known_group(self.services.groups, group_id)
        member = next((each for each in group.members if each.group_instance_id == group_instance_id), None)
        if member is None:
            reason = f"no member of group {group_id!r} has the group instance id {group_instance_id!r}"
            raise GroupRefused(ErrorCode.UNKNOWN_MEMBER_ID.name, reason)
        if not dry_run:
            identity = MemberIdentity(
                member_id="", group_instance_id=group_instance_id, reason=f"removed by {changed_by}"
            )
            try:
                request = LeaveGroupRequest(group_id=group_id, members=[identity])
                response = await run_steps(self.call_group(group_id, request))
            except KafkaError as error:
                raise refused(error) from error
            codes = [response.error_code, *(each.error_code for each in response.members)]
            if code := next((code for code in codes if code), 0):
                raise refused(KafkaError("the member was not removed", code=ErrorCode(code)))
        return RemovedMember(
            dry_run=dry_run,
            group_id=group_id,
            group_instance_id=group_instance_id,
            member_id=member.member_id,
            client_id=member.client_id,
            client_host=member.client_host,
            partition_count=sum(map(len, (member.assignment or {}).values())),
        )

    # ---- asking the coordinator ----

    def call_group(self, group_id: str, request: Request[R]) -> Steps[R]:
        return self.services.groups.call_steps(group_id, request, CONTEXT, ignore_release)

    async def _committed(self, group_id: str) -> dict[TopicPartition, int]:
        """What a group has committed; nothing if there is no such group."""
        if find_group(self.services.groups, group_id) is None:
            return {}
        try:
            response = await self.services.groups.fetch_offsets(
                OffsetFetchRequestGroup(group_id=group_id, topics=None), ignore_release
            )
        except KafkaError as error:
            raise refused(error) from error
        return {
            TopicPartition(topic.name, each.partition_index): each.committed_offset
            for topic in response.topics
            for each in topic.partitions
        }


def errors_in(response: OffsetCommitResponse | OffsetDeleteResponse) -> dict[TopicPartition, ErrorCode]:
    """The partitions that an answer refuses, with the reasons."""
    return {
        TopicPartition(topic.name, answer.partition_index): ErrorCode(answer.error_code)
        for topic in response.topics
        for answer in topic.partitions
        if answer.error_code
    }


def find_group(groups: GroupCoordinator, group_id: str) -> GroupSnapshot | None:
    """The group with its members, None if there is none.

    Raises:
        GroupRefused: it cannot be known now.
    """
    try:
        return groups.machine(group_id, allow_empty=True).snapshot(group_id)
    except KafkaError as error:
        # Without the topic of the offsets nothing coordinates the group, and there is none.
        if error.code in (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.NOT_COORDINATOR):
            return None
        raise refused(error) from error


def known_group(groups: GroupCoordinator, group_id: str) -> GroupSnapshot:
    """The group with its members.

    Raises:
        GroupRefused: there is none, or it cannot be known now.
    """
    group = find_group(groups, group_id)
    if group is None:
        raise GroupRefused(ErrorCode.GROUP_ID_NOT_FOUND.name, f"there is no group {group_id!r}")
    return group


def refuse_members(group: GroupSnapshot | None) -> None:
    """Refuse a change of a group that has members.

    Raises:
        GroupRefused: it has.
    """
    if group is not None and group.member_count:
        raise not_empty(group)


def not_empty(group: GroupSnapshot) -> GroupRefused:
    members = counted(group.member_count, "member")
    reason = (
        f"group {group.group_id!r} has {members} and is {group.state}: stop its consumers, and wait until it is Empty; "
        "a consumer that was killed stays a member until its session times out"
    )
    return GroupRefused(ErrorCode.NON_EMPTY_GROUP.name, reason)


def refuse_too_many(partitions: Collection[TopicPartition]) -> None:
    """Refuse a change of too many partitions.

    Raises:
        GroupRefused: there are more than ``MAX_CHANGED_PARTITIONS``.
    """
    if len(partitions) > MAX_CHANGED_PARTITIONS:
        reason = f"{len(partitions)} partitions are too many for one change; name topics with {MAX_CHANGED_PARTITIONS}"
        raise GroupRefused(ErrorCode.INVALID_REQUEST.name, reason, ("topics",))


def refused(error: KafkaError) -> GroupRefused:
    return GroupRefused(error.code.name, str(error))


def no_such_partition(reason: str, field: tuple[str | int, ...]) -> GroupRefused:
    return GroupRefused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION.name, reason, field)


def partition_reset(planned: PlannedOffset, error: ErrorCode | None) -> PartitionReset:
    return PartitionReset(
        topic=planned.partition.topic,
        partition=planned.partition.partition,
        current_offset=planned.current,
        new_offset=planned.new,
        skipped_records=planned.skipped_records,
        repeated_records=planned.repeated_records,
        log_start_offset=planned.log.earliest,
        log_end_offset=planned.log.latest,
        remark=planned.remark or None,
        error=None if error is None else error.name,
    )


def is_in(place: TopicPartition, scopes: Iterable[ResetScope]) -> bool:
    return any(
        place.topic == scope.topic and (scope.partitions is None or place.partition in scope.partitions)
        for scope in scopes
    )


def in_parts(places: Iterable[TopicPartition]) -> Iterable[Sequence[TopicPartition]]:
    """``places`` in parts that fit into one request."""
    ordered = sorted(places)
    for start in range(0, len(ordered), PARTITIONS_PER_REQUEST):
        yield ordered[start : start + PARTITIONS_PER_REQUEST]


def by_topic(places: Iterable[TopicPartition]) -> Mapping[str, Sequence[TopicPartition]]:
    named: dict[str, list[TopicPartition]] = {}
    for place in places:
        named.setdefault(place.topic, []).append(place)
    return named


def known_or_refused(place: str, known: K | KafkaError) -> K:
    """What another broker has answered for one partition.

    Raises:
        GroupRefused: it is an error.
    """
    if isinstance(known, KafkaError):
        raise GroupRefused(known.code.name, f"{place}: {known}")
    return known
