"""What is in the log is there again, and what cannot be true costs no more than it must."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from random import Random

import attrs
import pytest

from kafka_wire.stored.groups import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupRecord,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicPartitions,
    encode_group_record,
)
from trio_broker.cluster.metadata_cache import MetadataCache
from trio_broker.cluster.metadata_image import MetadataImage
from trio_broker.config.group_coordinator_config import GroupCoordinatorConfig
from trio_broker.coordinator.group_machine import GroupMachine
from trio_broker.coordinator.group_result import GroupResult
from trio_broker.coordinator.reporting.snapshot import GroupType
from trio_broker.coordinator.runtime.result import Now

TOPIC_ID = bytes(range(16))


def epoch(group_id, value=2):
    return GroupRecord(
        ConsumerGroupMetadataKey(group_id=group_id), None if value is None else ConsumerGroupMetadataValue(epoch=value)
    )


def owns_partition_0(group_id, member_id):
    return GroupRecord(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=2,
            previous_member_epoch=1,
            state=0,
            assigned_partitions=[TopicPartitions(topic_id=TOPIC_ID, partitions=[0])],
            partitions_pending_revocation=[],
        ),
    )


def commit(group_id, offset):
    return GroupRecord(
        OffsetCommitKey(group=group_id, topic="t", partition=0),
        OffsetCommitValue(offset=offset, metadata="", commit_timestamp=0),
    )


@attrs.define
class Loaded:
    """A machine, and the results that take the groups out of the log whose records contradict each other."""

    machine: GroupMachine
    results: Mapping[str, GroupResult]

    @property
    def members(self):
        return {group_id: set(group.members) for group_id, group in self.machine.groups.items()}


def loaded(*records):
    machine = GroupMachine(Random(1), GroupCoordinatorConfig, MetadataCache(MetadataImage()))
    for record in records:
        machine.replay(encode_group_record(record))
    return Loaded(machine, machine.loaded(Now(0.0, 0), MetadataImage()))


CONTRADICTION = (epoch("g"), owns_partition_0("g", "a"), owns_partition_0("g", "b"))


def test_two_owners_of_one_partition_cost_their_group_its_members_and_other_groups_nothing():
    after = loaded(commit("g", 7), *CONTRADICTION, epoch("other"), owns_partition_0("other", "a"))
    assert after.members == {"g": set(), "other": {"a"}}
    assert after.machine.offsets.get("g", "t", 0).offset == 7
    assert after.machine.groups["g"].type is GroupType.CLASSIC


def test_what_takes_a_contradictory_group_out_of_the_log_ends_with_the_group_itself():
    after = loaded(*CONTRADICTION, owns_partition_0("g", "late"))
    tombstones = after.results["g"].records
    assert all(record.value is None for record in tombstones)
    assert {record.key.member_id for record in tombstones if hasattr(record.key, "member_id")} == {"a", "b", "late"}
    assert tombstones[-1].key == ConsumerGroupMetadataKey(group_id="g")


def test_a_contradiction_of_an_earlier_life_is_forgotten():
    first = loaded(*CONTRADICTION)
    after = loaded(*CONTRADICTION, *first.results["g"].records, epoch("g", 3), owns_partition_0("g", "c"))
    assert (after.members, after.results) == ({"g": {"c"}}, {})


def classic(group_id, *members):
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=1,
        protocol="range",
        leader=None,
        members=[
            MemberMetadata(
                member_id=member_id,
                group_instance_id=instance_id,
                client_id="c",
                client_host="/127.0.0.1",
                session_timeout=10_000,
                subscription=b"",
                assignment=b"",
            )
            for member_id, instance_id in members
        ],
    )
    return GroupRecord(GroupMetadataKey(group=group_id), value)


@pytest.mark.parametrize("members", [(("a", None), ("a", None)), (("a", "i"), ("b", "i"))])
def test_two_members_of_one_id_cost_their_classic_group_its_members_and_other_groups_nothing(members):
    after = loaded(commit("g", 7), classic("g", *members), classic("other", ("a", None)))
    assert after.members == {"g": set(), "other": {"a"}}
    assert after.results["g"].records == [GroupRecord(GroupMetadataKey(group="g"), None)]


def test_a_commit_of_kafka_0_8_is_a_commit_in_a_contradictory_group_too():
    machine = GroupMachine(Random(1), GroupCoordinatorConfig, MetadataCache(MetadataImage()))
    for record in CONTRADICTION:
        machine.replay(encode_group_record(record))
    key, value = encode_group_record(commit("g", 7))
    machine.replay((b"\0\0" + key[2:], value))
    committed = machine.offsets.get("g", "t", 0)
    assert committed is not None
    assert committed.offset == 7


def test_offsets_are_a_group_of_their_own_before_and_after_their_group():
    tombstone = GroupRecord(GroupMetadataKey(group="g"), None)
    for records in ([commit("g", 7)], [commit("g", 7), classic("g", ("a", None)), tombstone]):
        after = loaded(*records)
        assert after.members == {"g": set()}
        assert after.machine.groups["g"].state.value == "Empty"
    assert loaded(commit("g", 7), GroupRecord(commit("g", 7).key, None), tombstone).members == {}


def test_contradictions_are_found_without_assertions():
    """As ``python -O`` runs the broker, which leaves them out."""
    program = "from tests.coordinator.test_group_loading import *; print(loaded(*CONTRADICTION).members)"
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "{}\n"
