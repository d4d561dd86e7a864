"""One event of a classic group: the state that it changes, and what follows from it.

Between two stable generations everything is in memory only, and is changed at once. What needs a record is put into
the result, and done by ``GroupMetadata.apply``: an update has at most one record, as the last thing that it decides.
"""

from __future__ import annotations

from collections.abc import Iterator

from kafka_wire.error_codes import ErrorCode
from trio_broker.coordinator.classic.group_metadata import GroupMetadata
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.classic.responses import NO_MEMBER_ID, join_error, sync_error
from trio_broker.coordinator.group_event import GroupEventKind
from trio_broker.coordinator.group_result import GroupResult, group_event
from trio_broker.coordinator.runtime.response_future import ResponseFuture
from trio_broker.coordinator.runtime.result import Now


class ClassicGroupUpdate:
    """An update of ``group``, which collects in ``result`` what has to be done."""

    def __init__(self, group: GroupMetadata, now: Now) -> None:
        group.now = now
        self.group = group
        self.result = GroupResult()

    def record_event(self, kind: GroupEventKind, member: ClassicMember | None = None, reason: str | None = "") -> None:
        self.result.events.append(group_event(kind, self.group.now, self.group.generation_id, member, reason))

    def remove(self, member: ClassicMember, kind: GroupEventKind, reason: str | None) -> None:
        """Remove ``member``. Its waiting requests get UNKNOWN_MEMBER_ID, upon which a living client joins anew."""
        self.fail_requests(member, ErrorCode.UNKNOWN_MEMBER_ID)
        self.group.member_table.remove(member.member_id)
        self.record_event(kind, member, reason)

    def await_join(self, member: ClassicMember, future: ResponseFuture) -> None:
        """Let a JoinGroup wait. It may have been sent before, on a connection that is gone."""
        self._fail_join(member, ErrorCode.REBALANCE_IN_PROGRESS, member.member_id)
        self.group.member_table.await_join(member, future)

    def await_sync(self, member: ClassicMember, future: ResponseFuture) -> None:
        """Let a SyncGroup wait, which may have been sent before as well."""
        self._fail_sync(member, ErrorCode.REBALANCE_IN_PROGRESS)
        member.awaiting_sync = future

    def fail_requests(self, member: ClassicMember, code: ErrorCode, member_id: str = NO_MEMBER_ID) -> None:
        """Complete the member's JoinGroup and SyncGroup with an error, those that wait."""
        self._fail_join(member, code, member_id)
        self._fail_sync(member, code)

    def _fail_join(self, member: ClassicMember, code: ErrorCode, member_id: str) -> None:
        if (future := self.group.member_table.pop_awaiting_join(member)) is not None:
            self.result.complete(future, join_error(code, member_id))

    def _fail_sync(self, member: ClassicMember, code: ErrorCode) -> None:
        if (future := member.awaiting_sync) is not None:
            member.awaiting_sync = None
            self.result.complete(future, sync_error(code))

    def pop_awaiting_syncs(self) -> Iterator[tuple[ClassicMember, ResponseFuture]]:
        """The SyncGroup requests that wait, which do so no longer."""
        for member in self.group.members.values():
            if (future := member.awaiting_sync) is not None:
                member.awaiting_sync = None
                # Its session deadline may have passed without effect while the request waited.
                self.group.extend_session(member)
                yield member, future
