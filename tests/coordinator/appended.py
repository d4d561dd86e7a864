"""What a shard does with the result of one group, without a log."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from trio_broker.coordinator.group import Group
from trio_broker.coordinator.group_result import GroupResult


def appended(group: Group | None, result: GroupResult, code: ErrorCode = ErrorCode.NONE) -> GroupResult:
    """The result that takes effect when the log has taken the records, or refused them with ``code``."""
    if code and result.records:
        assert result.refused is not None
        instead = result.refused(code)
        assert isinstance(instead, GroupResult)
        assert not instead.records
        return instead
    if result.replace_with is None:
        for record in result.records:
            assert group is not None
            group.apply(record)
    return result
