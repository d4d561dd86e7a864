"""Brokers with a bug in their groups, put there on purpose, to show that a run finds it.

A bug replaces one function of the coordinator before the broker starts, in the broker's process alone:
``python -m tests.checking.seeded_bugs <bug> start …``.

Source: the habit of testing a test; mutation testing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from kafka_wire.records.record import NewRecord
from trio_broker.cli import main
from trio_broker.coordinator import group_loading, group_shard
from trio_broker.coordinator.classic.group import ClassicGroup
from trio_broker.coordinator.classic.member import ClassicMember
from trio_broker.coordinator.consumer.current_assignment import Reconciliation
from trio_broker.coordinator.offsets import requests
from trio_broker.testing.process import BrokerProcess


def replace(owner: object, name: str, function: Callable[..., Any]) -> None:
    """Let ``owner``, a class or a module, have another function of this name from now on."""
    assert hasattr(owner, name), f"{owner} has no {name}"
    setattr(owner, name, function)


def commits_are_not_written() -> None:
    """They are remembered until the broker ends."""

    def append_commit(shard: group_shard.GroupShard, records: Sequence[NewRecord]) -> None:
        for record in records:
            assert record.key is not None
            shard.offsets.put(record.key, record.value)

    replace(group_shard.GroupShard, "_append_commit", append_commit)


def old_commits_come_back() -> None:
    """After a start the first commit of a partition counts, not the last."""
    fold = group_loading.LoadedGroups.fold
    seen: set[bytes] = set()

    def fold_first(loaded: group_loading.LoadedGroups, record: Any) -> None:
        key = bytes(record[0])
        if not key.startswith(group_loading.COMMIT_PREFIX) or key not in seen:
            fold(loaded, record)
        seen.add(key)

    replace(group_loading.LoadedGroups, "fold", fold_first)


def offsets_are_one_too_high() -> None:
    """Members begin one record too late."""
    fetched = requests.fetched_offsets

    def fetched_too_high(offsets: Any, request: Any) -> Any:
        response = yield from fetched(offsets, request)
        for topic in response.topics:
            for partition in topic.partitions:
                partition.committed_offset += 1
        return response

    replace(group_shard, "fetched_offsets", fetched_too_high)


def everybody_gets_the_assignment_of_the_leader() -> None:
    synced = ClassicGroup._synced

    def synced_as_leader(group: ClassicGroup, member: ClassicMember) -> Any:
        return synced(group, group.members[group.leader_id or member.member_id])

    replace(ClassicGroup, "_synced", synced_as_leader)


def generations_stay_the_same() -> None:
    def next_generation(group: ClassicGroup) -> None:
        group.generation_id = max(group.generation_id, 1)

    replace(ClassicGroup, "_next_generation", next_generation)


def revocations_are_not_waited_for() -> None:
    """In groups of KIP-848."""
    replace(Reconciliation, "_still_has", lambda *_: False)


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        commits_are_not_written,
        old_commits_come_back,
        offsets_are_one_too_high,
        everybody_gets_the_assignment_of_the_leader,
        generations_stay_the_same,
        revocations_are_not_waited_for,
    )
}


@attrs.define
class BuggyBroker(BrokerProcess):
    """A broker process with one of ``BUGS``."""

    bug: str = ""

    def command(self) -> list[str]:
        python, _, _, *arguments = super().command()
        return [python, "-m", "tests.checking.seeded_bugs", self.bug, *arguments]


if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    main()
