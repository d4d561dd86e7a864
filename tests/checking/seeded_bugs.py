"""Brokers with a bug in their groups or in a resize, put there on purpose, to show that a run finds it.

A bug replaces one function of the broker before that starts, in the broker's process alone:
``python -m tests.checking.seeded_bugs <bug> start …``.

Source: the habit of testing a test; mutation testing.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import attrs

from kafka_wire.records.record import NewRecord
from kafka_wire.stored.offset_commits import COMMIT_PREFIX
from trio_broker.cli import main
from trio_broker.coordinator import group_machine
from trio_broker.coordinator.classic import sync_group
from trio_broker.coordinator.classic.group_metadata import GroupMetadata
from trio_broker.coordinator.classic.group_update import ClassicGroupUpdate
from trio_broker.coordinator.consumer.current_assignment import Reconciliation
from trio_broker.coordinator.offsets import requests
from trio_broker.coordinator.runtime.log import CoordinatorLog
from trio_broker.network.connection import Connection
from trio_broker.network.errors import CloseConnection
from trio_broker.network.processor import Processor
from trio_broker.testing.process import BrokerProcess


def replace(owner: object, name: str, function: Callable[..., Any]) -> None:
    """Let ``owner``, a class or a module, have another function of this name from now on."""
    assert hasattr(owner, name), f"{owner} has no {name}"
    setattr(owner, name, function)


def commits_are_not_written() -> None:
    """They are remembered until the broker ends."""

    append = CoordinatorLog.append

    def append_others(log: CoordinatorLog, records: Sequence[NewRecord]) -> None:
        if others := [record for record in records if not _is_commit(record)]:
            append(log, others)

    replace(CoordinatorLog, "append", append_others)


def _is_commit(record: NewRecord) -> bool:
    return record.key is not None and record.key.startswith(COMMIT_PREFIX)


def old_commits_come_back() -> None:
    """After a start the first commit of a partition counts, not the last."""
    replay = group_machine.GroupMachine.replay
    seen: set[bytes] = set()

    def replay_first(machine: group_machine.GroupMachine, record: Any) -> None:
        key = bytes(record[0])
        if not key.startswith(COMMIT_PREFIX) or key not in seen:
            replay(machine, record)
        seen.add(key)

    replace(group_machine.GroupMachine, "replay", replay_first)


def offsets_are_one_too_high() -> None:
    """Members begin one record too late."""
    fetched = requests.fetched_offsets

    def fetched_too_high(offsets: Any, request: Any, **stable: Any) -> Any:
        response = yield from fetched(offsets, request, **stable)
        for topic in response.topics:
            for partition in topic.partitions:
                partition.committed_offset += 1
        return response

    replace(group_machine, "fetched_offsets", fetched_too_high)


def everybody_gets_the_assignment_of_the_leader() -> None:
    assign = sync_group.assign

    def assign_to_all(update: ClassicGroupUpdate, by_leader: dict[str, bytes]) -> None:
        of_leader = by_leader.get(update.group.leader_id or "", b"")
        assign(update, dict.fromkeys(update.group.members, of_leader))

    replace(sync_group, "assign", assign_to_all)


def generations_stay_the_same() -> None:
    def next_generation(group: GroupMetadata) -> None:
        group.generation_id = max(group.generation_id, 1)

    replace(GroupMetadata, "next_generation", next_generation)


def revocations_are_not_waited_for() -> None:
    """In groups of KIP-848."""
    replace(Reconciliation, "_still_has", lambda *_: False)


def connections_are_closed_when_they_move() -> None:
    """From one Processor to another."""
    accept = Processor.accept

    def accept_new_ones(processor: Processor, connection: Connection) -> None:
        accept(processor, connection)
        if connection.bytes_in:
            connection.close_now(CloseConnection("it has moved"))

    replace(Processor, "accept", accept_new_ones)


BUGS: dict[str, Callable[[], None]] = {
    bug.__name__: bug
    for bug in (
        commits_are_not_written,
        old_commits_come_back,
        offsets_are_one_too_high,
        everybody_gets_the_assignment_of_the_leader,
        generations_stay_the_same,
        revocations_are_not_waited_for,
        connections_are_closed_when_they_move,
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
