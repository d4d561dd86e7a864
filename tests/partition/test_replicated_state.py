"""Whatever comes in whatever order, nothing that was visible is lost; and the model finds it where something is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.partition.replicated_partition import ReplicatedPartition
from trio_broker.partition.in_sync_replicas import PendingExpandIsr, PendingShrinkIsr
from trio_broker.partition.remote_replicas import NOT_AWAITED, RemoteReplicas, Replica
from trio_broker.partition.state import PartitionState

SEEDS = (*range(400), *range(1560, 1600))
"""Among them are some that find each of the mistakes below."""


def run(seed: int) -> None:
    partition = ReplicatedPartition(seed)
    try:
        partition.run(80)
    except AssertionError as error:
        error.add_note("\n".join((f"seed {seed}", *partition.story[-20:])))
        raise


def test_what_is_visible_is_never_lost():
    for seed in SEEDS:
        run(seed)


def await_nobody(remote: RemoteReplicas, *arguments: Any) -> int:
    """The high watermark without the in-sync replicas."""
    return NOT_AWAITED


def forget_epoch_start(remote: RemoteReplicas, log_end_offset: int, now: float, *, is_new_leader: bool) -> None:
    """A replica may join before it has the beginning of the epoch."""
    BEGIN_EPOCH(remote, log_end_offset, now, is_new_leader=is_new_leader)
    remote.epoch_start_offset = 0


def believe_complete(replica: Replica, leader_end: int, now: float, *, is_in_sync: bool, is_new_leader: bool) -> None:
    """Replicas that are in sync at an election count as having all, before they have fetched."""
    REPLICA_BEGIN_EPOCH(replica, leader_end, now, is_in_sync=is_in_sync, is_new_leader=is_new_leader)
    replica.log_end_offset = leader_end


def take_back(remote: Any, pending: Any, code: Any) -> bool:
    """Any error counts as news that nothing was done."""
    if remote.state is pending:
        remote.state = pending.last_committed
    return False


def show_all(state: PartitionState, decided: Any, now: float) -> Any:
    """A new leader shows all that it has."""
    advance = LEAD(state, decided, now)
    state.high_watermark = state.last_stable_offset = state.log_end_offset
    return advance


def ignore_disk(state: PartitionState, log_end_offset: int, size_bytes: int) -> Any:
    """What was appended counts as durable."""
    state.durable_offset = log_end_offset
    return APPENDED(state, log_end_offset, size_bytes)


def fall_back(state: PartitionState, decided: Any, now: float) -> Any:
    """The high watermark follows a replica that joins."""
    advance = LEAD(state, decided, now)
    state.high_watermark = state.last_stable_offset = min(
        state.high_watermark, max(0, min(each.log_end_offset for each in state.remote.replicas.values()))
    )
    return advance


BEGIN_EPOCH, REPLICA_BEGIN_EPOCH = RemoteReplicas.begin_epoch, Replica.begin_epoch
LEAD, APPENDED = PartitionState.lead, PartitionState.appended


@pytest.mark.parametrize(
    ("owner", "name", "mistake"),
    [
        (RemoteReplicas, "replicated_offset", await_nobody),
        (PendingShrinkIsr, "maximal_isr", PendingShrinkIsr.wanted_isr),
        (PendingExpandIsr, "maximal_isr", PendingExpandIsr.isr),
        (RemoteReplicas, "begin_epoch", forget_epoch_start),
        (Replica, "begin_epoch", believe_complete),
        (RemoteReplicas, "refused", take_back),
        (PartitionState, "min_in_sync_replicas", property(lambda state: 1)),
        (PartitionState, "lead", show_all),
        (PartitionState, "lead", fall_back),
        (PartitionState, "appended", ignore_disk),
    ],
)
def test_mistakes_are_found(monkeypatch, owner, name, mistake):
    """A leader that does this loses something in some of these seeds."""
    monkeypatch.setattr(owner, name, mistake)

    def fails(seed: int) -> bool:
        try:
            run(seed)
        except AssertionError:
            return True
        return False

    assert any(fails(seed) for seed in SEEDS)
