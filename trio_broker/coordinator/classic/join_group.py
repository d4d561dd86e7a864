"""JoinGroup in a classic group: a member is added, takes part in a rebalance, or comes back.

A dynamic member without an id is given one and has to join again with it (KIP-394); before version 4 it is added at
once. A member that joins again takes part in a rebalance, or starts one because its strategies changed or because it
leads, or has merely missed a response and gets the state as it is.

Static members (KIP-345) come back under a new member id within their session. The old id is fenced with
FENCED_INSTANCE_ID, requests of it that wait included, and in a stable group no other member notices: the new id gets
the same assignment, unless its strategies would make the group choose another one. If it leads, it learns so from
version 9 on, and that it need not assign anew (KIP-814); older clients get another member as the leader, because they
would assign.

Source: Kafka's GroupMetadataManager (classicGroupJoin…); KIP-345, KIP-394, KIP-814.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from kafka_wire.error_codes import ErrorCode
from kafka_wire.messages.join_group import JoinGroupRequest
from trio_broker.coordinator.classic.group_metadata import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupMetadata,
)
from trio_broker.coordinator.classic.group_update import ClassicGroupUpdate
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.protocols import are_same, choose_protocol, protocols_of
from trio_broker.coordinator.classic.rebalance import complete_join_unless_initial, rebalance_or_complete_join
from trio_broker.coordinator.classic.responses import (
    FIRST_JOIN_WITH_KNOWN_MEMBER_ID,
    NO_MEMBER_ID,
    join_error,
    rebalance_timeout_ms,
)
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.runtime.result import Completion, CoordinatorEvent

NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 5 * 60 * 1000
"""How long the first JoinGroup of a member waits at most, as in Kafka: its client may be gone, which nothing else would
show, and a client that is there asks again."""

FIRST_JOIN_WITH_SKIP_ASSIGNMENT: Final = 9
"""From this version of JoinGroup on, a static leader that returns learns that it need not assign (KIP-814)."""

_Join = CoordinatorEvent[JoinGroupRequest]


def join(group: GroupMetadata, join: _Join) -> GroupResult:
    """Add a member, or let it take part in a rebalance. The request has passed ``join_request_error``."""
    update, request, table = ClassicGroupUpdate(group, join.now), join.request, group.member_table
    if not _has_room_for(group, request.member_id):
        _reject_for_size(update, join)
    elif group.state is DEAD:
        _fail(update, join, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    elif not _supports(group, request):
        _fail(update, join, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    elif request.member_id == NO_MEMBER_ID:
        _join_without_id(update, join)
    elif request.member_id in table.pending_joins and request.group_instance_id is None:
        _add(update, join, request.member_id)
    elif request.member_id in table.pending_joins:
        # Ids are given to dynamic members only, so this client is in error. Kafka says no more than this either.
        _fail(update, join, ErrorCode.UNKNOWN_SERVER_ERROR)
    elif code := table.membership_error(request.member_id, request.group_instance_id):
        _fail(update, join, code)
    else:
        _join_again(update, join, group.members[request.member_id])
    return update.result


def _fail(update: ClassicGroupUpdate, join: _Join, code: ErrorCode, member_id: str | None = None) -> None:
    """Complete ``join`` with an error; the member id is the request's, unless another is given."""
    update.result.complete(join.future, join_error(code, join.request.member_id if member_id is None else member_id))


def _has_room_for(group: GroupMetadata, member_id: str) -> bool:
    """Whether ``group.max.size`` allows it. While the group prepares a rebalance only the members that have joined
    count, so that a group that is too large loses the last ones.
    """
    if group.state is PREPARING_REBALANCE:
        member = group.members.get(member_id)
        is_counted = member is not None and member.awaiting_join is not None
        return is_counted or group.member_table.awaiting_join_count < group.settings.group_max_size
    if group.state in (COMPLETING_REBALANCE, STABLE):
        return member_id in group.members or len(group.members) < group.settings.group_max_size
    return True


def _reject_for_size(update: ClassicGroupUpdate, join: _Join) -> None:
    _fail(update, join, ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID)
    if member := update.group.members.get(join.request.member_id):
        update.remove(member, GroupEventKind.MEMBER_LEFT, "the group is full")
    else:
        update.group.member_table.remove(join.request.member_id)
    complete_join_unless_initial(update)


def _supports(group: GroupMetadata, request: JoinGroupRequest) -> bool:
    if group.state is EMPTY:
        return bool(request.protocol_type) and bool(request.protocols)
    names = (protocol.name for protocol in request.protocols)
    return request.protocol_type == group.protocol_type and group.member_table.supports_any(names)


def _join_without_id(update: ClassicGroupUpdate, join: _Join) -> None:
    """Replace a static member that has its instance id, else add the member or give it an id."""
    group, instance_id = update.group, join.request.group_instance_id
    old_member_id = None if instance_id is None else group.member_table.static_member_id(instance_id)
    if old_member_id is not None:
        _replace(update, join, group.members[old_member_id])
    elif instance_id is None and join.context.version >= FIRST_JOIN_WITH_KNOWN_MEMBER_ID:
        deadline = group.now.monotonic_seconds + join.request.session_timeout_ms / 1000
        group.member_table.add_pending(join.new_id, deadline)
        group.next_session_deadline = min(group.next_session_deadline, deadline)
        _fail(update, join, ErrorCode.MEMBER_ID_REQUIRED, join.new_id)
    else:
        _add(update, join, join.new_id)


def _add(update: ClassicGroupUpdate, join: _Join, member_id: str) -> None:
    group = update.group
    if not group.members:
        group.protocol_type = join.request.protocol_type
    member = ClassicMember(
        member_id=member_id,
        instance_id=join.request.group_instance_id,
        client_id=join.context.client_id,
        client_host=join.context.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(join.request),
        session_timeout_ms=join.request.session_timeout_ms,
        protocols=protocols_of(join.request.protocols),
        is_new=True,
    )
    if group.initial_delay is not None:
        group.initial_delay.has_grown = True
    group.member_table.add(member)
    update.await_join(member, join.future)
    group.extend_session(member, NEW_MEMBER_JOIN_TIMEOUT_MS)
    update.record_event(GroupEventKind.MEMBER_JOINED, member, join.request.reason)
    rebalance_or_complete_join(update, f"{member_id} joined")


def _join_again(update: ClassicGroupUpdate, join: _Join, member: ClassicMember) -> None:
    group, protocols = update.group, protocols_of(join.request.protocols)
    is_changed = not are_same(member.protocols, protocols)
    # A leader that joins again wants a new assignment, of other partitions for instance, though it says the same.
    wants_rebalance = group.state is STABLE and member.member_id == group.leader_id
    if group.state is PREPARING_REBALANCE or is_changed or wants_rebalance:
        kind = GroupEventKind.SUBSCRIPTION_CHANGED if is_changed else GroupEventKind.MEMBER_REJOINED
        group.member_table.set_protocols(member, protocols)
        member.rebalance_timeout_ms = rebalance_timeout_ms(join.request)
        member.session_timeout_ms = join.request.session_timeout_ms
        update.await_join(member, join.future)
        update.record_event(kind, member, join.request.reason)
        rebalance_or_complete_join(update, f"{member.member_id}: {kind.value}")
    else:
        group.extend_session(member)
        update.result.complete(join.future, group.joined(member.member_id))


# --- Static members that come back ---


def _replace(update: ClassicGroupUpdate, join: _Join, old: ClassicMember) -> None:
    """A static member comes back under a new id."""
    group, new = update.group, old.replaced_by(join.new_id, join.request)
    members = [*(member for member in group.members.values() if member is not old), new]
    if group.state is STABLE and choose_protocol(member.protocols for member in members) == group.protocol_name:
        _replace_in_generation(update, join, old, new, members)
        return
    update.fail_requests(old, ErrorCode.FENCED_INSTANCE_ID, old.member_id)
    group.member_table.replace(old, new)
    group.extend_session(new)
    _record_replacement(update, join, old, new)
    # While a generation completes, its leader may assign to the old id: no member would get that share.
    update.await_join(new, join.future)
    rebalance_or_complete_join(update, f"{new.member_id} replaced {old.member_id}")


def _replace_in_generation(
    update: ClassicGroupUpdate, join: _Join, old: ClassicMember, new: ClassicMember, members: Sequence[ClassicMember]
) -> None:
    """Decide that ``new`` has the place of ``old`` in the stable generation."""
    group, result = update.group, update.result
    leads, response = old.member_id == group.leader_id, group.joined(NO_MEMBER_ID)
    response.member_id = new.member_id
    if leads and join.context.version >= FIRST_JOIN_WITH_SKIP_ASSIGNMENT:
        # An older client, which does not know the field, would assign anew if it learned that it leads (KIP-814).
        response.leader, response.skip_assignment = new.member_id, True
        response.members = [each.for_leader(group.protocol_name) for each in members]
    group.replacement = new
    _record_replacement(update, join, old, new)
    result.complete(join.future, response)
    leader_id = new.member_id if leads else group.leader_id
    result.records.append(group.record_of(members, leader_id, group.state_since_ms))
    result.refused = partial(_replacement_refused, group, join, old)


def _replacement_refused(group: GroupMetadata, join: _Join, old: ClassicMember, code: ErrorCode) -> GroupResult:
    """The id that the log has stays the valid one. Its client lives: it may need a while to ask again."""
    group.extend_session(old)
    response = group.joined(NO_MEMBER_ID)
    response.error_code = code
    return GroupResult(completions=[Completion(join.future, response)])


def _record_replacement(update: ClassicGroupUpdate, join: _Join, old: ClassicMember, new: ClassicMember) -> None:
    update.record_event(GroupEventKind.MEMBER_FENCED, old, f"replaced by {new.member_id}")
    update.record_event(GroupEventKind.MEMBER_REPLACED, new, join.request.reason)
