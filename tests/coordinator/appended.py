"""What a shard does with the records of one group, without a log."""

from __future__ import annotations

from kafka_wire.error_codes import ErrorCode
from kafka_wire.stored.groups import GroupMetadataKey, GroupMetadataValue, GroupRecord
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.group import Group
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.runtime.result import Now


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


def restored(value: GroupMetadataValue, settings: GroupCoordinatorConfig, now: Now) -> ClassicGroup:
    """The classic group ``g`` as it is after a restart."""
    group = ClassicGroup("g", settings, now)
    group.apply(GroupRecord(GroupMetadataKey(group="g"), value))
    group.loaded(now)
    return group
